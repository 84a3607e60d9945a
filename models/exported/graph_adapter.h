#pragma once

#include <optional>
#include <vector>

#include "models/exported/exported_spec.h"

namespace spillway {

/// A call that multiplies by a matrix, with or without a bias.
struct LinearCall {
  std::size_t input = 0;    ///< position of the factor among the arguments
  int weight = 0;           ///< value of the matrix
  bool transposed = false;  ///< false: it is [out, in]; true: [in, out]
};

/// Nothing if the node is no such call.
std::optional<LinearCall> linear_call(const GraphNode& node);

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
