#pragma once

#include <memory>
#include <string>

#include "core/device/mapped_memory.h"

namespace spillway {

/// Zeroed host memory of exactly the size asked for that copies reach at the link's full speed:
/// huge pages where the system has them, touched by several threads, then page-locked for every
/// GPU. (cudaMallocHost would touch it with one thread, and LibTorch's pinned allocator rounds up
/// to powers of two.)
class PinnedMemory final : public DeviceMemory {
 public:
  /// Throws OutOfMemory of the host where the machine has no such room now, ConfigError
  /// (`host_memory`) where the system does not let this process lock so much.
  PinnedMemory(int gpu, Bytes bytes, const std::string& owner);
  ~PinnedMemory() override;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* data() const override { return memory_.data(); }
  Bytes size() const override { return memory_.size(); }

 private:
  void lock(const std::string& owner);
  void unlock() noexcept;

  const int gpu_;
  const MappedMemory memory_;
  Bytes locked_ = 0;
};

}  // namespace spillway
