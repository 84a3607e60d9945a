#include "core/device/link.h"

#include <algorithm>
#include <set>

namespace spillway {

LinkTable::LinkTable(const std::vector<LinkConfig>& links) {
  for (const LinkConfig& link : links) {
    for (int device : link.between) size_ = std::max(size_, static_cast<std::size_t>(device) + 1);
  }
  path_of_pairs_.assign(size_ * size_, -1);
  for (const LinkConfig& link : links) {
    const Path path{static_cast<double>(link.bytes_per_s), link.latency_s};
    const std::size_t first = paths_.size();
    for (int from : link.between) {
      for (int to : link.between) {
        const auto pair = static_cast<std::size_t>(from) * size_ + static_cast<std::size_t>(to);
        if (from == to || path_of_pairs_[pair] >= 0) continue;
        if (!link.shared || paths_.size() == first) paths_.push_back(path);
        path_of_pairs_[pair] = static_cast<int>(paths_.size()) - 1;
      }
    }
  }
}

int LinkTable::path(std::size_t from, std::size_t to) const {
  return from < size_ && to < size_ ? path_of_pairs_[from * size_ + to] : -1;
}

bool LinkTable::are_alike(const std::vector<std::size_t>& devices) const {
  std::multiset<int> numbers;
  for (std::size_t from : devices) {
    for (std::size_t to : devices) {
      if (from != to) numbers.insert(path(from, to));
    }
  }
  if (numbers.empty() || numbers.count(*numbers.begin()) == numbers.size()) return true;
  const auto differs = [&](int number) {
    return number < 0 || numbers.count(number) > 1 ||
           paths_[static_cast<std::size_t>(number)] !=
               paths_[static_cast<std::size_t>(*numbers.begin())];
  };
  return std::ranges::none_of(numbers, differs);
}

Link::Link(double bytes_per_s, double latency_s)
    : bytes_per_s_(bytes_per_s),
      latency_(std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(latency_s))) {}

Link::Clock::duration Link::duration_of(std::size_t bytes) const {
  const std::chrono::duration<double> least(static_cast<double>(bytes) / bytes_per_s_);
  return std::chrono::ceil<Clock::duration>(least);
}

Link::Passage Link::take(std::size_t bytes, Clock::time_point asked) {
  const MutexLock lock(mutex_);
  free_at_ = std::max(asked, free_at_) + duration_of(bytes);
  return {free_at_ + latency_, overtaken_};
}

Link::Passage Link::overtake(std::size_t bytes, Clock::time_point asked) {
  const Clock::duration takes = duration_of(bytes);
  const MutexLock lock(mutex_);
  const Clock::time_point begin = std::max(asked, overtaking_free_at_);
  overtaking_free_at_ = begin + takes;
  if (free_at_ > begin) {
    free_at_ += takes;
    overtaken_ += takes;
  } else {
    free_at_ = overtaking_free_at_;
  }
  return {overtaking_free_at_ + latency_, overtaken_, /*overtakes=*/true};
}

Link::Clock::time_point Link::arrival(const Passage& passage) const {
  if (passage.overtakes) return passage.arrives;
  const MutexLock lock(mutex_);
  return passage.arrives + (overtaken_ - passage.overtaken_before);
}

}  // namespace spillway
