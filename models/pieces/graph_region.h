#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "models/graphs/graph_facts.h"
#include "models/pieces/division.h"

namespace spillway {

/// A number among the arguments of a node that is another one in a piece.
struct NumberChange {
  int node = 0;
  std::size_t argument = 0;
  int item = -1;  ///< position, if the argument is a list
  std::int64_t number = 0;
};

/// The part of a graph that pieces share: each of its nodes computes a part of its outputs.
struct GraphRegion {
  std::set<int> nodes;
  std::map<int, Division> divided;  ///< values of which a piece has a part
  std::set<int> sliced;             ///< of these, fixed ones, which a piece gets whole and slices
  std::set<int> whole;              ///< values that its nodes read whole
  std::vector<NumberChange> changes;
  bool attends = false;  ///< it has a softmax: an attention
};

/// Finds what computes `value` in parts, from there back to products with parameters, of which a
/// piece has a part. Throws Indivisible if an operator is not known to work on parts.
/// `pieces` 1: sizes do not matter.
GraphRegion region_before(const GraphFacts& facts, int value, const Division& division,
                          std::int64_t pieces);

}  // namespace spillway
