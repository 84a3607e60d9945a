#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "core/base/mutex.h"
#include "spillway/device_config.h"

namespace spillway {

/// The link that a copy between two devices takes. A value.
class LinkTable {
 public:
  /// What copies take in turns: a shared link, or one direction between two devices.
  struct Path {
    double bytes_per_s = 0, latency_s = 0;
    bool operator==(const Path&) const = default;
  };

  LinkTable() = default;
  explicit LinkTable(const std::vector<LinkConfig>& links);
  /// The number of the path between two devices; -1: no link connects them.
  int path(std::size_t from, std::size_t to) const;
  const std::vector<Path>& paths() const { return paths_; }
  /// Whether these devices may change places: all pairs of them are connected alike.
  bool are_alike(const std::vector<std::size_t>& devices) const;

 private:
  std::size_t size_ = 0;            // devices up to the last one with a link
  std::vector<int> path_of_pairs_;  // [from, to]
  std::vector<Path> paths_;
};

/// A link that CPU devices imitate: copies take it one after another. Thread-safe.
class Link {
 public:
  using Clock = std::chrono::steady_clock;
  /// A copy on its way.
  struct Passage {
    Clock::time_point arrives;           ///< unless it is overtaken
    Clock::duration overtaken_before{};  ///< see arrival()
    bool overtakes = false;              ///< no other copy overtakes it
  };

  explicit Link(double bytes_per_s, double latency_s = 0);
  /// A copy that was requested at `asked` and takes the link once it is free.
  Passage take(std::size_t bytes, Clock::time_point asked);
  /// Like take(), for a copy that goes before all copies of take(), even one that is on its way.
  Passage overtake(std::size_t bytes, Clock::time_point asked);
  /// When a copy that is still on its way arrives, if no other overtakes it from now on.
  Clock::time_point arrival(const Passage& passage) const;

 private:
  Clock::duration duration_of(std::size_t bytes) const;

  const double bytes_per_s_;
  const Clock::duration latency_;
  mutable Mutex mutex_;
  Clock::time_point free_at_ SPILLWAY_GUARDED_BY(mutex_);
  Clock::time_point overtaking_free_at_ SPILLWAY_GUARDED_BY(mutex_);  // for copies that overtake
  Clock::duration overtaken_ SPILLWAY_GUARDED_BY(mutex_){};           // total wait for these
};

}  // namespace spillway
