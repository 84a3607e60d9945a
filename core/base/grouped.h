#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "spillway/ids.h"

namespace spillway {

/// Numbers in groups, which are stored one after another (compressed sparse rows).
class Grouped {
 public:
  struct Item {
    int group = 0, number = 0;
  };

  Grouped() = default;
  /// The numbers of a group keep the order of `items`.
  Grouped(std::size_t groups, const std::vector<Item>& items)
      : begins_(groups + 1), numbers_(items.size()) {
    for (const Item& item : items) ++begins_[at(item.group) + 1];
    for (std::size_t group = 0; group < groups; ++group) begins_[group + 1] += begins_[group];
    std::vector<std::size_t> next = begins_;
    for (const Item& item : items) numbers_[next[at(item.group)]++] = item.number;
  }

  std::size_t groups() const { return begins_.size() - 1; }
  std::span<const int> operator[](int group) const {
    const std::size_t begin = begins_[at(group)];
    return {numbers_.data() + begin, begins_[at(group) + 1] - begin};
  }
  /// Those of all groups, in order.
  const std::vector<int>& numbers() const { return numbers_; }

  /// For each number from 0 to `size` - 1: the groups that contain it.
  Grouped inverse(std::size_t size) const {
    std::vector<Item> items;
    items.reserve(numbers_.size());
    for (int group = 0; group < static_cast<int>(groups()); ++group) {
      for (int number : (*this)[group]) items.push_back({number, group});
    }
    return {size, items};
  }

 private:
  std::vector<std::size_t> begins_{0};  // by group, in `numbers_`; and the end
  std::vector<int> numbers_;
};

}  // namespace spillway
