#include "spilling/tiers/device_arena.h"

#include <fmt/format.h>

#include <stdexcept>

namespace spillway {

DeviceArena::DeviceArena(Device& device)
    : memory_(device.allocate(device.split().planned(device.budget()))) {}

std::byte* DeviceArena::at(Bytes offset, Bytes bytes) const {
  if (offset > size() || bytes > size() - offset) {
    throw std::out_of_range(
        fmt::format("device arena: range ends at {}, the arena at {}", offset + bytes, size()));
  }
  return memory_->data() + offset;
}

}  // namespace spillway
