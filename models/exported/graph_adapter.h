#pragma once

#include <compare>
#include <vector>

#include "models/graphs/exported_spec.h"

namespace spillway {

/// Which adapters a graph of a layer gets, and what they compute.
struct GraphAdaptation {
  int num_before = 0;        ///< inputs and parameters of the layer, which keep their numbers
  int num_given = 0;         ///< with its constants
  std::vector<int> weights;  ///< values of the matrices that get an adapter
  double dropout = 0;
  double scale = 1;
  auto operator<=>(const GraphAdaptation&) const = default;
};

/// The graph with an adapter behind each call that multiplies by matrix i of `weights`: dropout,
/// product with value `num_before` + 2i [r, in], product with the next one [out, r], scale, sum.
/// Source: `peft.tuners.lora.Linear.forward`.
ExportedGraph adapted_graph(const ExportedGraph& graph, const GraphAdaptation& adaptation);

}  // namespace spillway
