#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "spilling/residency/buffer.h"
#include "spilling/tiers/host_arena.h"
#include "spillway/units.h"

namespace spillway {

/// The host memory of a job: its own region, and blocks that it shares with other jobs.
class Home {
 public:
  Home() = default;
  /// A region that outlives the home, without shared blocks.
  explicit Home(std::byte* own) : data_(own) {}

  /// The address of a position in the job's layout.
  std::byte* at(Bytes position) const {
    if (position < kSharedHomes) return data_ + position;
    const Part& part = part_at(position);
    return part.block->memory.data() + (position - part.begin);
  }
  /// Whether the position is in a block that other jobs may be reading: nothing may write there
  /// once the home is filled.
  static bool is_shared(Bytes position) { return position >= kSharedHomes; }
  /// While the home is being filled: whether another job has written the position before.
  bool is_written(Bytes position) const {
    return is_shared(position) && part_at(position).was_written;
  }
  /// False for one that has no memory.
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class Homes;
  struct Block {
    HostArena::Region memory;
    bool is_written = false;
  };
  struct Part {
    Bytes begin = 0;
    std::shared_ptr<Block> block;
    bool was_written = false;
  };
  const Part& part_at(Bytes position) const;

  HostArena::Region own_;
  std::byte* data_ = nullptr;
  std::vector<Part> parts_;  // ascending
};

/// Makes the homes of jobs in one arena. A block that several of them share is there once.
/// Thread-safe.
class Homes {
 public:
  /// The arena outlives all homes.
  explicit Homes(HostArena& arena) : arena_(arena) {}

  /// Memory that has a block's content, such as a part of a file; null: none.
  using Find = std::function<std::shared_ptr<std::byte>(const SharedBlock& block)>;
  /// Reserves memory and calls `write`, which writes the initial state everywhere but where
  /// Home::is_written(). A block that `find` finds is written. Throws what the arena, `find` and
  /// `write` throw; `home` then keeps what it has.
  void fill(Home& home, Bytes own, std::span<const SharedBlock> shared, const Find& find,
            const std::function<void()>& write);
  /// Frees its memory, and the blocks that no other home has.
  void release(Home& home);

 private:
  HostArena& arena_;
  Mutex mutex_;  // while blocks are written or freed, so that both happen once
  boost::unordered_flat_map<std::string, std::weak_ptr<Home::Block>> blocks_
      SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
