#include "spilling/tiers/host_arena.h"

#include <algorithm>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

class AdoptedMemory final : public DeviceMemory {
 public:
  AdoptedMemory(std::shared_ptr<std::byte> memory, Bytes bytes)
      : memory_(std::move(memory)), bytes_(bytes) {}
  std::byte* data() const override { return memory_.get(); }
  Bytes size() const override { return bytes_; }

 private:
  const std::shared_ptr<std::byte> memory_;
  const Bytes bytes_;
};

}  // namespace

HostArena::Region::Region(Region&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      memory_(std::move(other.memory_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

HostArena::Region& HostArena::Region::operator=(Region&& other) noexcept {
  Region taken(std::move(other));  // its destructor gives back this region's bytes
  std::swap(arena_, taken.arena_);
  std::swap(memory_, taken.memory_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

HostArena::Region::~Region() {
  memory_.reset();
  if (arena_) arena_->give_back(bytes_);
}

HostArena::Region HostArena::charge(Bytes bytes) {
  const MutexLock lock(mutex_);
  if (bytes > budget_ - in_use_) {
    throw OutOfMemory(Tier::host, bytes, budget_ - in_use_, "host arena");
  }
  in_use_ += bytes;
  return {*this, bytes};
}

HostArena::Region HostArena::reserve(Bytes bytes) {
  Region region = charge(bytes);  // gives the bytes back if the store throws
  region.memory_ = store_.allocate(bytes);
  const MutexLock lock(mutex_);
  peak_ = std::max(peak_, in_use_);
  return region;
}

HostArena::Region HostArena::adopt(std::shared_ptr<std::byte> memory, Bytes bytes) {
  Region region = charge(bytes);
  region.memory_ = std::make_unique<AdoptedMemory>(std::move(memory), bytes);
  const MutexLock lock(mutex_);
  peak_ = std::max(peak_, in_use_);
  return region;
}

void HostArena::give_back(Bytes bytes) noexcept {
  const MutexLock lock(mutex_);
  in_use_ -= bytes;
}

Bytes HostArena::in_use() const {
  const MutexLock lock(mutex_);
  return in_use_;
}

Bytes HostArena::peak() const {
  const MutexLock lock(mutex_);
  return peak_;
}

}  // namespace spillway
