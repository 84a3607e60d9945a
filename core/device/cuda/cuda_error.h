#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "spillway/error.h"

namespace spillway {

/// A failed call of the CUDA runtime that no other exception type describes.
class CudaError : public Error {
 public:
  CudaError(cudaError_t code, const std::string& call);
  cudaError_t code;
};

/// Throws CudaError unless `code` is success. Clears the thread's error unless it is sticky.
void require(cudaError_t code, const char* call);

/// Explains why cudaGetDeviceCount failed with `code`. Versions are CUDA's numbers, such as 13000
/// for 13.0; a `driver` of 0 means that there is none.
std::string why_no_gpu(cudaError_t code, int driver, int runtime);

// Errors for a GPU that cannot be used. The fields are those of a device in the configuration:
// kind, index, memory.

ConfigError no_gpu(const std::string& why);
ConfigError index_out_of_range(int index, int num_gpus);
/// This build has no code for the GPU's compute capability `major`.`minor`.
ConfigError gpu_too_old(int index, int major, int minor);
ConfigError budget_above_free(int index, Bytes budget, Bytes free);
/// `free` bytes are free, but not contiguous.
ConfigError budget_above_pieces(int index, Bytes budget, Bytes free);

/// cudaHostRegister of `bytes` failed with `code` in a process that may lock `limit` bytes. Throws
/// ConfigError (`host_memory`) if the limit explains the failure, else OutOfMemory of the host.
[[noreturn]] void throw_not_lockable(cudaError_t code, Bytes bytes, Bytes limit,
                                     const std::string& who);

}  // namespace spillway
