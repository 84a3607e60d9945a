#include "core/device/device.h"

#include <fmt/format.h>

#include "spillway/error.h"

namespace spillway {
namespace {

constexpr const char* kWhyNone =
    "this Spillway was built without CUDA; build it on a machine with nvcc 13 "
    "(-DSPILLWAY_CUDA=ON)";

}  // namespace

GpuList list_gpus() { return {.why_none = kWhyNone}; }

std::unique_ptr<Device> make_cuda_device(const std::string&, int, Bytes, const MemorySplit&) {
  throw ConfigError("kind", 0, fmt::format("is cuda, but {}, or use kind: cpu", kWhyNone));
}

}  // namespace spillway
