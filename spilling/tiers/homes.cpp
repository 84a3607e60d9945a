#include "spilling/tiers/homes.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace spillway {

const Home::Part& Home::part_at(Bytes position) const {
  const auto after = std::ranges::upper_bound(parts_, position, {}, &Part::begin);
  assert(after != parts_.begin());
  return *std::prev(after);
}

void Homes::fill(Home& home, Bytes own, std::span<const SharedBlock> shared, const Find& find,
                 const std::function<void()>& write) {
  home.own_ = arena_.reserve(own);
  home.data_ = home.own_.data();
  if (shared.empty()) return write();
  const MutexLock lock(mutex_);
  for (const SharedBlock& block : shared) {
    std::weak_ptr<Home::Block>& known = blocks_[block.content];
    std::shared_ptr<Home::Block> here = known.lock();
    if (!here) {
      here = std::make_shared<Home::Block>();
      auto found = find(block);
      here->is_written = found != nullptr;
      here->memory =
          found ? arena_.adopt(std::move(found), block.bytes) : arena_.reserve(block.bytes);
      known = here;
    }
    home.parts_.push_back({block.home, here, here->is_written});
  }
  write();
  for (const Home::Part& part : home.parts_) part.block->is_written = true;
}

void Homes::release(Home& home) {
  const MutexLock lock(mutex_);
  home = {};
  boost::unordered::erase_if(blocks_, [](const auto& known) { return known.second.expired(); });
}

}  // namespace spillway
