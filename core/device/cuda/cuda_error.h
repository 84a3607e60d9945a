#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "spillway/error.h"

namespace spillway {

/// A call of the CUDA runtime failed for a reason that has no type of its own.
class CudaError : public Error {
 public:
  CudaError(cudaError_t code, const std::string& call);
  cudaError_t code;
};

/// Throws CudaError unless `code` is success. Forgets the thread's error, unless it stays for ever.
void require(cudaError_t code, const char* call);

/// What is said where cudaGetDeviceCount failed with `code`. Versions are numbers as the runtime
/// gives them, 13000 for 13.0; a `driver` of 0 is none.
std::string why_no_gpu(cudaError_t code, int driver, int runtime);

// What is said where a GPU cannot be had. Fields are those of a device of the configuration: kind,
// index, memory.

ConfigError no_gpu(const std::string& why);
ConfigError index_out_of_range(int index, int num_gpus);
/// The GPU has compute capability `major`.`minor`, for which nothing is compiled.
ConfigError gpu_too_old(int index, int major, int minor);
ConfigError budget_above_free(int index, Bytes budget, Bytes free);
/// So many bytes are free, but not in one piece.
ConfigError budget_above_pieces(int index, Bytes budget, Bytes free);

/// cudaHostRegister of `bytes` failed with `code`, where the process may lock `limit` bytes:
/// ConfigError (`host_memory`) where that explains it, else OutOfMemory of the host.
[[noreturn]] void throw_not_lockable(cudaError_t code, Bytes bytes, Bytes limit,
                                     const std::string& who);

}  // namespace spillway
