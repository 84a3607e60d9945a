#include "trainer/torch/torch_gpu.h"

#include <fmt/format.h>

#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <mutex>
#include <string>

#include "core/device/cuda/cuda_error.h"
#include "models/base/reason.h"
#include "trainer/torch/counting_allocator.h"

namespace spillway {
namespace {

namespace pluggable = torch::cuda::CUDAPluggableAllocator;

/// Allocations without a meter are LibTorch's own workspaces.
void* allocate(std::size_t bytes, int, cudaStream_t) {
  if (void* block = place_on_gpu(bytes)) return block;
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) == cudaSuccess) return memory;
  cudaGetLastError();
  throw OutOfMemory(Tier::device, bytes, 0, "LibTorch's workspaces on a GPU");
}

/// In stream order, so the next owner computes after the previous one.
void release(void* block, std::size_t, int, cudaStream_t) {
  if (!remove_from_gpu(block)) cudaFree(block);
}

/// A function of a library that is loaded at run time, with the type that its header declares.
template <typename Function>
Function* find(void* library, const char* symbol) {
  void* const found = dlsym(library, symbol);
  if (found == nullptr) throw no_gpu("LibTorch's GPU library lacks " + std::string(symbol));
  return reinterpret_cast<Function*>(found);
}

constexpr const char* kLibrary = "libtorch_cuda.so";

void* open_library() { return dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL); }

void* load_library() {
  void* const library = open_library();
  if (library == nullptr) {
    const char* const why = dlerror();
    throw no_gpu(std::string("LibTorch's GPU library cannot be loaded (") + (why ? why : kLibrary) +
                 "); use a LibTorch for CUDA 13");
  }
  return library;
}

struct Library {
  /// The interface by which LibTorch uses another GPU allocator.
  decltype(pluggable::createCustomAllocator)* create = nullptr;
  decltype(pluggable::changeCurrentAllocator)* change = nullptr;
  /// The workspace of cuBLASLt, kept per thread, handle and stream (ATen/cuda/CUDAContextLight.h,
  /// which needs headers of libraries that nothing else here uses).
  void* (*product_workspace)() = nullptr;
};

Library find_functions(void* library) {
  return {.create = find<decltype(pluggable::createCustomAllocator)>(
              library,
              "_ZN5torch4cuda22CUDAPluggableAllocator21createCustomAllocatorE"
              "St8functionIFPvmiP11CUstream_stEES2_IFvS3_miS5_EE"),
          .change = find<decltype(pluggable::changeCurrentAllocator)>(
              library,
              "_ZN5torch4cuda22CUDAPluggableAllocator22changeCurrentAllocatorE"
              "RKSt10shared_ptrIN3c104cuda20CUDACachingAllocator13CUDAAllocatorEE"),
          .product_workspace = find<void*()>(library, "_ZN2at4cuda22getCUDABlasLtWorkspaceEv")};
}

Library& library() {
  static Library functions;
  return functions;
}

/// The same bits in every run, computed with fp32 arithmetic.
void choose_kernels() {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setBenchmarkCuDNN(false);
  context.setDeterministicCuDNN(true);
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setSDPUseCuDNN(false);
}

}  // namespace

void offer_torch_gpu() {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) == cudaSuccess && num_gpus > 0) open_library();
  cudaGetLastError();
}

void load_torch_gpu() {
  static std::once_flag once;
  std::call_once(once, [] {
    // cuBLAS guarantees equal bits only with workspaces of this kind.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0);
    library() = find_functions(load_library());
    if (!at::globalContext().hasCUDA()) {
      throw no_gpu("LibTorch finds no GPU, or was used before Spillway was");
    }
    library().change(library().create(&allocate, &release));
    choose_kernels();
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  });
}

static void bind(c10::DeviceIndex gpu, cudaStream_t stream) {
  c10::cuda::set_device(gpu);
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(stream, gpu));
  const at::Tensor x = at::ones({32, 32}, at::TensorOptions(torch_device(gpu)));
  at::mm(x, x);
  library().product_workspace();  // inside an op it would be charged as activations, and kept
}

void bind_torch_thread(int gpu, void* stream) {
  try {
    bind(static_cast<c10::DeviceIndex>(gpu), static_cast<cudaStream_t>(stream));
  } catch (const c10::Error& error) {
    throw Error(fmt::format(
        "LibTorch cannot compute on GPU {}: {}; if its memory is full, give the devices on it less",
        gpu, reason_of(error)));
  }
}

}  // namespace spillway
