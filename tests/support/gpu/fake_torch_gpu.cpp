// LibTorch's part for GPUs (trainer/torch/torch_gpu.h) on the runtime of fake_cudart.h. Programs
// linked with it compute on tensors that LibTorch takes to be on GPUs. Its CPU code computes them
// once all earlier work of their stream is done. As on a GPU, operations that mix both kinds of
// tensors are refused; so are operations that would wait for a GPU in an op.

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

#include "spillway/error.h"
#include "tests/support/gpu/fake_cudart.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/torch_gpu.h"

namespace {

std::atomic<bool> is_loaded = false;

}  // namespace

namespace at {
namespace {

/// LibTorch looks it up by this name, once; libraries loaded later are never found.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {
    TORCH_CHECK(is_loaded, "LibTorch was asked for GPUs before its part for them was loaded");
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool hasCUDA() const override { return true; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace
}  // namespace at

namespace spillway {
namespace {

struct Binding {
  c10::DeviceIndex gpu = -1;
  cudaStream_t stream = nullptr;
};
thread_local Binding bound;

class GpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(c10::DeviceType::CUDA, bound.gpu);
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    void* block = place_on_gpu(bytes);
    if (block == nullptr && cudaMalloc(&block, bytes) != cudaSuccess) {
      throw OutOfMemory(Tier::device, bytes, 0, "LibTorch's workspaces on a GPU");
    }
    return {block, block, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(testing::seen_by_gpu(to), testing::seen_by_gpu(from), bytes);
  }

 private:
  static void release(void* block) {
    if (block != nullptr && !remove_from_gpu(block)) cudaFree(block);
  }
};

GpuAllocator* allocator() {
  static GpuAllocator all;
  return &all;
}

void require_bound(std::optional<at::Device> device) {
  TORCH_CHECK(bound.gpu >= 0, "a thread that is bound to no GPU makes a tensor on one");
  TORCH_CHECK(!device || !device->has_index() || device->index() == bound.gpu, "a thread of GPU ",
              int{bound.gpu}, " makes a tensor on ", *device);
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  require_bound(device);
  return at::detail::empty_generic(size, allocator(), kKeys, dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  require_bound(device);
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys,
                                           dtype.value_or(at::kFloat));
}

/// The same memory as a CPU tensor.
at::Tensor on_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::for_blob(testing::seen_by_kernel(tensor.data_ptr()), tensor.sizes())
      .strides(tensor.strides())
      .options(tensor.options().device(at::kCPU))
      .make_tensor();
}

void finish_stream() {
  TORCH_CHECK(cudaStreamSynchronize(bound.stream) == cudaSuccess, "CUDA error");
}

/// During its lifetime, the stand-in converts tensors to the CPU and back.
class OnCpu {
 public:
  OnCpu() { is_alive = true; }
  ~OnCpu() { is_alive = false; }
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;

  static thread_local bool is_alive;
};
thread_local bool OnCpu::is_alive = false;

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool) {
  TORCH_CHECK(OnCpu::is_alive || !to.is_cpu(), "an op waits for a GPU, to copy a tensor from it");
  finish_stream();
  on_cpu(to).copy_(on_cpu(from));
  return to;
}

/// Converts results back to GPU tensors.
at::Tensor copy_and_resize(const at::Tensor& from, const at::Tensor& to) {
  to.resize_(from.sizes());
  return to.copy_(from);
}

at::Scalar wait_for_number(const at::Tensor&) {
  TORCH_CHECK(false, "an op waits for a GPU, to read a number from it");
}

/// Only single numbers may come from the host, as on a GPU. The storage offset is visible to the
/// code that chooses kernels of matrix products.
void require_on_gpu(const c10::OperatorHandle& op, const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
  const std::string& name = op.schema().name();
  TORCH_CHECK(!tensor.is_cpu(), name, " mixes tensors of the CPU with those of a GPU");
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.storage().data());
  TORCH_CHECK(begin % 256 == 0, name, " takes memory that begins at no multiple of 256 bytes");
}

void compute(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  for (const c10::IValue& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    if (argument.isTensor()) require_on_gpu(op, argument.toTensor());
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& tensor : argument.toTensorVector()) require_on_gpu(op, tensor);
  }
  finish_stream();
  const OnCpu scope;
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, CUDA, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy);
  m.impl("_copy_from_and_resize", &copy_and_resize);
  m.impl("resize_", &at::native::resize_);
  m.impl("_local_scalar_dense", &wait_for_number);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("view", &at::native::view);
}

/// A thread has one GPU and one stream, which is idle when an event is recorded.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device getDevice() const override { return {type(), bound.gpu}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return getDevice();
  }
  void setDevice(c10::Device device) const override { require_bound(device); }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(testing::fake_cuda().num_gpus);
  }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace

void offer_torch_gpu() { is_loaded = true; }

void load_torch_gpu() { TORCH_CHECK(at::globalContext().hasCUDA(), "LibTorch finds no GPU"); }

void bind_torch_thread(int gpu, void* stream) {
  bound = {static_cast<c10::DeviceIndex>(gpu), static_cast<cudaStream_t>(stream)};
}

void free_torch_workspaces(void*) {}

}  // namespace spillway
