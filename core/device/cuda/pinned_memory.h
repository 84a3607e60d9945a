#pragma once

#include <memory>
#include <string>

#include "core/device/mapped_memory.h"

namespace spillway {

/// Zeroed host memory of exactly the requested size that copies at the full speed of the link: huge
/// pages if available, touched by several threads, then page-locked for every GPU. (cudaMallocHost
/// touches with one thread, and LibTorch's pinned allocator rounds up to powers of two.)
class PinnedMemory final : public DeviceMemory {
 public:
  /// Throws OutOfMemory of the host if the machine has too little free memory, and ConfigError
  /// (`host_memory`) if this process may not lock that much.
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
