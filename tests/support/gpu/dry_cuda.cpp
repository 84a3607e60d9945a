#include "tests/support/gpu/dry_cuda.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "tests/support/gpu/fake_cudart.h"

using spillway::testing::dry_cuda;
using spillway::testing::fake_cuda;
using spillway::testing::seen_by_gpu;

namespace spillway::testing {

DryCuda& dry_cuda() {
  static DryCuda asked;
  return asked;
}

}  // namespace spillway::testing

namespace {

cudaError_t launched(cudaStream_t stream) {
  ++dry_cuda().kernels;
  if (!stream) ++fake_cuda().on_no_stream;
  return cudaSuccess;
}

int multiplied() {
  ++dry_cuda().products;
  return 0;
}

/// An opaque handle.
int made(void** handle) {
  *handle = &dry_cuda();
  return 0;
}

}  // namespace

extern "C" {

// The runtime calls that fake_cudart.cpp lacks.

cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = fake_cuda().capability;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int,
                                                                   std::size_t, unsigned) {
  *blocks = 8;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  ++fake_cuda().waits;
  std::memcpy(seen_by_gpu(to), seen_by_gpu(from), bytes);
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  ++fake_cuda().waits;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launched(stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void*, void**) {
  return launched(how->stream);
}

// cuBLAS: handles, settings, products.

int cublasCreate_v2(void** handle) { return made(handle); }
int cublasDestroy_v2(void*) { return 0; }
int cublasSetStream_v2(void*, cudaStream_t stream) {
  if (!stream) ++fake_cuda().on_no_stream;
  return 0;
}
int cublasSetWorkspace_v2(...) { return 0; }
int cublasGetMathMode(void*, int* mode) { return *mode = 0; }
int cublasSetMathMode(...) { return 0; }
int cublasGetPointerMode_v2(void*, int* mode) { return *mode = 0; }
int cublasSetPointerMode_v2(...) { return 0; }
int cublasSgemm_v2(...) { return multiplied(); }
int cublasSgemv_v2(...) { return multiplied(); }
int cublasGemmEx(...) { return multiplied(); }
int cublasSgemmStridedBatched(...) { return multiplied(); }
int cublasGemmStridedBatchedEx(...) { return multiplied(); }

// cuBLASLt: descriptions of a product, the choice of an algorithm, and the product.

int cublasLtMatmulDescCreate(void** handle, ...) { return made(handle); }
int cublasLtMatmulDescDestroy(void*) { return 0; }
int cublasLtMatmulDescSetAttribute(...) { return 0; }
int cublasLtMatrixLayoutCreate(void** handle, ...) { return made(handle); }
int cublasLtMatrixLayoutDestroy(void*) { return 0; }
int cublasLtMatrixLayoutSetAttribute(...) { return 0; }
int cublasLtMatmulPreferenceCreate(void** handle) { return made(handle); }
int cublasLtMatmulPreferenceDestroy(void*) { return 0; }
int cublasLtMatmulPreferenceSetAttribute(void*, int attribute, const void* value, std::size_t) {
  constexpr int kFirst = 5, kLast = 8;  // CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{A,B,C,D}_BYTES
  if (attribute < kFirst || attribute > kLast) return 0;
  std::uint32_t alignment = 0;
  std::memcpy(&alignment, value, sizeof alignment);
  ++dry_cuda().alignments.at(alignment);
  return 0;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, void*,
                                   int* found) {
  *found = 1;
  return 0;
}
int cublasLtMatmul(...) { return multiplied(); }

}  // extern "C"
