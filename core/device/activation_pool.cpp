#include "core/device/activation_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

/// Blocks are aligned as in CUDA, because kernels are chosen by alignment. No block is empty.
Bytes block_of(Bytes bytes) {
  constexpr Bytes kBlock = 512;
  return round_up(std::max<Bytes>(bytes, 1), kBlock);
}

}  // namespace

void* ActivationPool::place(Bytes bytes) {
  const MutexLock lock(mutex_);
  const auto offset = ranges_.allocate(block_of(bytes));
  if (!offset) throw OutOfMemory(Tier::device, bytes, ranges_.largest_hole(), owner());
  return memory_->data() + *offset;
}

void ActivationPool::remove(void* block, Bytes bytes) noexcept {
  const auto offset = static_cast<Bytes>(static_cast<std::byte*>(block) - memory_->data());
  const MutexLock lock(mutex_);
  ranges_.free(offset, block_of(bytes));
}

std::unique_ptr<ActivationMeter> make_activation_meter(const std::string& name,
                                                       std::unique_ptr<DeviceMemory> pool) {
  const std::string owner = fmt::format("{} activations", name);
  if (!pool) return std::make_unique<ActivationCounter>(owner);
  return std::make_unique<ActivationPool>(owner, std::move(pool));
}

}  // namespace spillway
