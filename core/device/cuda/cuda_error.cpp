#include "core/device/cuda/cuda_error.h"

namespace spillway {
namespace {

constexpr const char* kUseCpu = "or use kind: cpu";

/// "13.0" of 13000.
std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string of_gpu(int index) { return "GPU " + std::to_string(index); }

}  // namespace

CudaError::CudaError(cudaError_t error, const std::string& call)
    : Error(call + " failed: " + cudaGetErrorString(error) + " (CUDA error " +
            std::to_string(error) + ")"),
      code(error) {}

void require(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError();
  throw CudaError(code, call);
}

std::string why_no_gpu(cudaError_t code, int driver, int runtime) {
  if (driver == 0) {
    return "this machine has no NVIDIA driver; install one that supports CUDA " + version(runtime);
  }
  if (code == cudaErrorInsufficientDriver) {
    return "the NVIDIA driver supports CUDA " + version(driver) + " and this build needs " +
           version(runtime) + "; update the driver";
  }
  if (code == cudaErrorNoDevice) {
    return "the NVIDIA driver shows no GPU; see nvidia-smi and CUDA_VISIBLE_DEVICES";
  }
  return std::string("GPUs do not work here: ") + cudaGetErrorString(code) + "; see nvidia-smi";
}

ConfigError no_gpu(const std::string& why) {
  return {"kind", 0, "is cuda, but " + why + ", " + kUseCpu};
}

ConfigError index_out_of_range(int index, int num_gpus) {
  const std::string there_are = num_gpus == 1
                                    ? "there is one GPU, number 0"
                                    : "GPUs are numbered from 0 to " + std::to_string(num_gpus - 1);
  return {"index", 0, "is " + std::to_string(index) + ", but " + there_are};
}

ConfigError gpu_too_old(int index, int major, int minor) {
  return {"index", 0,
          of_gpu(index) + " has compute capability " + std::to_string(major) + "." +
              std::to_string(minor) + ", and this build has no code for it; use another, " +
              kUseCpu};
}

ConfigError budget_above_free(int index, Bytes budget, Bytes free) {
  return {"memory", 0,
          "is " + format_bytes(budget) + ", but " + format_bytes(free) + " are free on " +
              of_gpu(index) + "; write less, or end what else uses it"};
}

ConfigError budget_above_pieces(int index, Bytes budget, Bytes free) {
  return {"memory", 0,
          "is " + format_bytes(budget) + ", and " + of_gpu(index) + " has no such piece, though " +
              format_bytes(free) + " are free; write less"};
}

void throw_not_lockable(cudaError_t code, Bytes bytes, Bytes limit, const std::string& who) {
  if (limit < bytes) {
    throw ConfigError("host_memory", 0,
                      format_bytes(bytes) + " cannot be page-locked for " + who + ": " +
                          cudaGetErrorString(code) + "; this process may lock " +
                          format_bytes(limit) + ", raise that limit (ulimit -l), or write less");
  }
  throw OutOfMemory(Tier::host, bytes, 0, who + " (page-locked: " + cudaGetErrorString(code) + ")");
}

}  // namespace spillway
