#pragma once

#include <algorithm>
#include <cassert>
#include <compare>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

/// The order of every sum over virtual nodes, and of the sums over the pieces of a layer.
///
/// Virtual nodes are split into `groups` consecutive ranges of equal size. A group is a left fold
/// in virtual-node order. Groups are combined by the perfect binary tree over their indices; a
/// subtree without leaves is skipped, never added as zeros. So the result does not depend on the
/// devices or lanes that computed the leaves. Pieces are the leaves of such a tree.
namespace spillway {

/// Leaves [begin, end) of a tree.
struct LeafRange {
  int begin = 0, end = 1;
  auto operator<=>(const LeafRange&) const = default;
};

/// Sums by the tree over `leaves` leaves: whatever order they come in, each node is the sum of its
/// left and its right child, added once both are there.
template <typename T>
class TreeSum {
 public:
  explicit TreeSum(int leaves = 1) : leaves_(leaves) {}

  /// Adds a leaf, or a whole subtree. One that is there already is added to.
  void add(LeafRange range, T value) {
    if (const auto known = nodes_.find(range); known != nodes_.end()) {
      known->second = known->second + value;
      return;
    }
    for (int size = 1; size < leaves_; size *= 2) {
      if (range.end - range.begin > size) continue;
      const bool is_left = range.begin % (2 * size) == 0;
      if (is_left && range.begin + size >= leaves_) continue;  // has no right sibling
      const int end = std::min(range.begin + 2 * size, leaves_);
      const auto sibling = nodes_.find(is_left ? LeafRange{range.end, end}
                                               : LeafRange{range.begin - size, range.begin});
      if (sibling == nodes_.end()) break;
      value = is_left ? value + sibling->second : sibling->second + value;
      range = is_left ? LeafRange{range.begin, end} : LeafRange{range.begin - size, range.end};
      nodes_.erase(sibling);
    }
    nodes_.emplace(range, std::move(value));
  }

  /// The finished subtrees, ascending.
  const std::map<LeafRange, T>& parts() const { return nodes_; }
  /// The whole sum. All leaves are there.
  const T& whole() const {
    assert(nodes_.size() == 1);
    return nodes_.begin()->second;
  }

 private:
  int leaves_;
  std::map<LeafRange, T> nodes_;
};

/// The subtrees that leaves `range` of a tree over `leaves` leaves finish, ascending.
inline std::vector<LeafRange> subtrees(LeafRange range, int leaves) {
  const int size = range.end - range.begin;
  if (size == 1 || size == leaves) return {range};
  TreeSum<int> tree(leaves);
  for (int leaf = range.begin; leaf < range.end; ++leaf) tree.add({leaf, leaf + 1}, 0);
  std::vector<LeafRange> found;
  for (const auto& [part, unused] : tree.parts()) found.push_back(part);
  return found;
}

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
