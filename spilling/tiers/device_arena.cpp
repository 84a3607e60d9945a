#include "spilling/tiers/device_arena.h"

#include <stdexcept>

namespace spillway {

DeviceArena::DeviceArena(Device& device)
    : memory_(device.allocate(device.split().planned(device.budget()))) {}

std::byte* DeviceArena::at(Bytes offset, Bytes bytes) const {
  if (offset > size() || bytes > size() - offset) {
    throw std::out_of_range("device arena: range ends at " + std::to_string(offset + bytes) +
                            ", the arena at " + std::to_string(size()));
  }
  return memory_->data() + offset;
}

}  // namespace spillway
