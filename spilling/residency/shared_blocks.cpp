#include "spilling/residency/shared_blocks.h"

#include "spillway/ids.h"

namespace spillway {

Bytes SharedBlocks::missing(std::span<const SharedBlock> blocks) const {
  Bytes bytes = 0;
  for (const SharedBlock& block : blocks) {
    const auto known = numbers_.find(block.content);
    if (known == numbers_.end() || num_jobs_[at(known->second)] == 0) bytes += block.bytes;
  }
  return bytes;
}

void SharedBlocks::take(std::span<const SharedBlock> blocks) {
  for (const SharedBlock& block : blocks) {
    const auto [known, is_new] = numbers_.try_emplace(block.content, size());
    if (is_new) num_jobs_.push_back(0);
    ++num_jobs_[at(known->second)];
  }
}

Bytes SharedBlocks::give_back(std::span<const SharedBlock> blocks) {
  Bytes bytes = 0;
  for (const SharedBlock& block : blocks) {
    if (--num_jobs_[at(number(block))] == 0) bytes += block.bytes;
  }
  return bytes;
}

}  // namespace spillway
