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

#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>

#include "core/device/cuda/cuda_error.h"
#include "models/base/reason.h"
#include "trainer/torch/cuda/gpu_allocator.h"

namespace spillway {
namespace {

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

/// ATen/cuda/CUDAContextLight.h, which needs headers of libraries that nothing else here uses,
/// declares these.
struct Workspaces {
  std::map<std::tuple<void*, void*>, at::DataPtr> of_handle_and_stream;
  std::shared_mutex mutex;
};
struct Library {
  /// The workspace of cuBLASLt for the calling thread's handle and stream.
  void* (*product_workspace)() = nullptr;
  Workspaces& (*workspaces)() = nullptr;
  Workspaces& (*product_workspaces)() = nullptr;
};

Library find_functions(void* library) {
  return {.product_workspace = find<void*()>(library, "_ZN2at4cuda22getCUDABlasLtWorkspaceEv"),
          .workspaces =
              find<Workspaces&()>(library, "_ZN2at4cuda33cublas_handle_stream_to_workspaceEv"),
          .product_workspaces =
              find<Workspaces&()>(library, "_ZN2at4cuda35cublaslt_handle_stream_to_workspaceEv")};
}

Library& library() {
  static Library functions;
  return functions;
}

/// LibTorch reads it once, in the first product on a GPU, which may be the user's. Workspaces of
/// one size on every GPU let cuBLAS choose the same kernels.
[[maybe_unused]] const bool fixes_workspaces =
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*replace=*/0) == 0;

}  // namespace

void offer_torch_gpu() {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) == cudaSuccess && num_gpus > 0) open_library();
  cudaGetLastError();
}

void load_torch_gpu() {
  static std::once_flag once;
  std::call_once(once, [] {
    library() = find_functions(load_library());
    if (!at::globalContext().hasCUDA()) {
      throw no_gpu("LibTorch finds no GPU, or was used before Spillway was");
    }
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    install_gpu_allocator();
  });
}

static void bind(c10::DeviceIndex gpu, cudaStream_t stream) {
  allocate_as_own_gpu_thread();
  c10::cuda::set_device(gpu);
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(stream, gpu));
  const at::Tensor x = at::ones({32, 32}, at::TensorOptions(torch_device(gpu)));
  at::mm(x, x);
  library().product_workspace();  // inside an op it would be charged as activations, and kept
}

void free_torch_workspaces(void* stream) {
  if (library().workspaces == nullptr) return;
  for (Workspaces* all : {&library().workspaces(), &library().product_workspaces()}) {
    const std::unique_lock lock(all->mutex);
    std::erase_if(all->of_handle_and_stream,
                  [&](const auto& entry) { return std::get<1>(entry.first) == stream; });
  }
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
