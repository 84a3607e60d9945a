#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

/// The order of every sum over virtual nodes.
///
/// Virtual nodes are split into `groups` consecutive ranges of equal size. A group is a left fold
/// in virtual-node order. Groups are combined by the perfect binary tree over their indices; a
/// subtree without leaves is skipped, never added as zeros. So the result does not depend on the
/// devices or lanes that computed the leaves.
namespace spillway {

/// A loss summed over virtual nodes, with its weight.
struct WeightedSum {
  double sum = 0, weight = 0;
  WeightedSum operator+(const WeightedSum& other) const {
    return {sum + other.sum, weight + other.weight};
  }
  double mean() const { return sum / weight; }
};

/// The additions (into, from), in order, that combine the subtrees beginning at `firsts` (ascending
/// group indices) to the whole tree.
inline std::vector<std::pair<int, int>> remaining_merges(std::vector<int> firsts, int groups) {
  std::vector<std::pair<int, int>> merges;
  for (int size = 1; size < groups; size *= 2) {
    for (int into = 0; into + size < groups; into += 2 * size) {
      const auto from = std::ranges::find(firsts, into + size);
      if (from == firsts.end()) continue;  // added already, inside a subtree
      merges.emplace_back(into, *from);
      firsts.erase(from);
    }
  }
  return merges;
}

/// Folds one value per virtual node in the order above.
template <typename T>
T fold(std::span<const T> values, int groups) {
  assert(groups > 0 && !values.empty() && values.size() % static_cast<std::size_t>(groups) == 0);
  const std::size_t per_group = values.size() / static_cast<std::size_t>(groups);
  std::vector<T> sums;
  for (std::size_t g = 0; g < static_cast<std::size_t>(groups); ++g) {
    T sum = values[g * per_group];
    for (std::size_t i = 1; i < per_group; ++i) sum = sum + values[g * per_group + i];
    sums.push_back(std::move(sum));
  }
  for (std::size_t step = 1; step < sums.size(); step *= 2) {
    for (std::size_t i = 0; i + step < sums.size(); i += 2 * step) {
      sums[i] = sums[i] + sums[i + step];
    }
  }
  return sums.front();
}

}  // namespace spillway
