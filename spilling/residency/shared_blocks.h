#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <span>
#include <string>
#include <vector>

#include "spilling/residency/buffer.h"

namespace spillway {

/// The blocks that jobs share, numbered by content, and how many jobs have each at home. Copyable.
class SharedBlocks {
 public:
  /// The bytes among `blocks` that no job has at home yet.
  Bytes missing(std::span<const SharedBlock> blocks) const;
  /// A job has them at home from now on.
  void take(std::span<const SharedBlock> blocks);
  /// A job has them no longer. Returns the bytes among them that no job has any more.
  Bytes give_back(std::span<const SharedBlock> blocks);
  /// The number of a block that some job has taken.
  int number(const SharedBlock& block) const { return numbers_.at(block.content); }
  int size() const { return static_cast<int>(num_jobs_.size()); }

 private:
  boost::unordered_flat_map<std::string, int> numbers_;
  std::vector<int> num_jobs_;  // by number
};

}  // namespace spillway
