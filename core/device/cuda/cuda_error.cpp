#include "core/device/cuda/cuda_error.h"

#include <fmt/format.h>

namespace spillway {
namespace {

constexpr const char* kUseCpu = "or use kind: cpu";

/// 13000 as "13.0".
std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

}  // namespace

CudaError::CudaError(cudaError_t error, const std::string& call)
    : Error(fmt::format("{} failed: {} (CUDA error {})", call, cudaGetErrorString(error),
                        static_cast<int>(error))),
      code(error) {}

void require(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw CudaError(code, call);
}

std::string why_no_gpu(cudaError_t code, int driver, int runtime) {
  if (driver == 0) {
    return fmt::format("this machine has no NVIDIA driver; install one that supports CUDA {}",
                       version(runtime));
  }
  if (code == cudaErrorInsufficientDriver) {
    return fmt::format(
        "the NVIDIA driver supports CUDA {} and this build needs {}; update the driver",
        version(driver), version(runtime));
  }
  if (code == cudaErrorNoDevice) {
    return "the NVIDIA driver shows no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES";
  }
  return fmt::format("GPUs do not work here: {}; see nvidia-smi", cudaGetErrorString(code));
}

ConfigError no_gpu(const std::string& why) {
  return {"kind", 0, fmt::format("is cuda, but {}, {}", why, kUseCpu)};
}

ConfigError index_out_of_range(int index, int num_gpus) {
  const std::string there_are = num_gpus == 1
                                    ? "there is one GPU, number 0"
                                    : fmt::format("GPUs are numbered from 0 to {}", num_gpus - 1);
  return {"index", 0, fmt::format("is {}, but {}", index, there_are)};
}

ConfigError gpu_too_old(int index, int major, int minor) {
  return {"index", 0,
          fmt::format("GPU {} has compute capability {}.{}, and this build has no code for it; use "
                      "another, {}",
                      index, major, minor, kUseCpu)};
}

ConfigError budget_above_free(int index, Bytes budget, Bytes free) {
  return {"memory", 0,
          fmt::format(
              "is {}, but {} are free on GPU {}; lower it, or stop other programs that use the GPU",
              format_bytes(budget), format_bytes(free), index)};
}

ConfigError budget_above_pieces(int index, Bytes budget, Bytes free) {
  return {
      "memory", 0,
      fmt::format("is {}, and GPU {} has {} free, but no contiguous block of that size; lower it",
                  format_bytes(budget), index, format_bytes(free))};
}

void throw_not_lockable(cudaError_t code, Bytes bytes, Bytes limit, const std::string& who) {
  if (limit < bytes) {
    throw ConfigError(
        "host_memory", 0,
        fmt::format("{} cannot be page-locked for {}: {}; this process may lock {}, "
                    "raise that limit (ulimit -l), or write less",
                    format_bytes(bytes), who, cudaGetErrorString(code), format_bytes(limit)));
  }
  throw OutOfMemory(Tier::host, bytes, 0,
                    fmt::format("{} (page-locked: {})", who, cudaGetErrorString(code)));
}

}  // namespace spillway
