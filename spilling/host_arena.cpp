#include "spilling/host_arena.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace spillway {

HostArena::Region::Region(HostArena& arena, std::unique_ptr<DeviceMemory> memory, Bytes bytes)
    : arena_(&arena), memory_(std::move(memory)), bytes_(bytes) {}

HostArena::Region::Region(Region&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      memory_(std::move(other.memory_)),
      bytes_(std::exchange(other.bytes_, 0)) {}

HostArena::Region& HostArena::Region::operator=(Region&& other) noexcept {
  Region taken(std::move(other));  // what this one had goes back with it
  std::swap(arena_, taken.arena_);
  std::swap(memory_, taken.memory_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

HostArena::Region::~Region() {
  memory_.reset();
  if (arena_) arena_->give_back(bytes_);
}

HostArena::HostArena(Bytes budget, Allocate allocate)
    : budget_(budget), allocate_(std::move(allocate)) {}

HostArena::Region HostArena::reserve(Bytes bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (bytes > budget_ - in_use_) {
      throw OutOfMemory(Tier::host, bytes, budget_ - in_use_, "host arena");
    }
    in_use_ += bytes;
    peak_ = std::max(peak_, in_use_);
  }
  try {
    return Region(*this, allocate_(bytes), bytes);
  } catch (...) {
    give_back(bytes);
    throw;
  }
}

void HostArena::give_back(Bytes bytes) noexcept {
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
}

Bytes HostArena::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

Bytes HostArena::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

}  // namespace spillway
