#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/modules/checked_module.h"
#include "models/modules/module_layer.h"
#include "spillway/graph.h"

namespace spillway {

/// What a Graph has been told; nothing is planned yet.
struct Graph::Impl {
  struct Value {
    at::Tensor probe;             ///< [kProbe, ...]: zeros, or what the layer made of zeros
    std::optional<RowPart> part;  ///< of the batch; none: a layer makes it
    std::int64_t limit = 0;       ///< of indices; 0: it holds none
    int num_readers = 0;
  };
  struct Piece {
    std::string name;
    std::variant<CheckedModule, Function, LossFunction> work;
    std::vector<Node> inputs;
    int value = -1;                    ///< that it makes; -1: it is the loss
    std::vector<Metric> metrics = {};  ///< beside the loss
  };

  std::vector<Value> values;
  std::vector<Piece> pieces;

  Node add_value(Value value);
  Node add_input(std::vector<std::int64_t> shape, DType dtype, std::int64_t limit);
  /// Checks the call and runs `run` on the probes of the inputs.
  Node add_piece(Piece piece, const std::function<at::Tensor(std::span<const at::Tensor>)>& run);
  /// Checks the name and the inputs of a layer and counts it among their readers. Returns probes.
  std::vector<at::Tensor> read(const std::string& name, const std::vector<Node>& inputs);
  bool has_loss() const;
};

/// Throws ConfigError (`model`).
[[noreturn]] void reject_model(const std::string& problem);

/// For what builds models from graphs.
struct GraphAccess {
  using Impl = Graph::Impl;
  static const Impl& impl(const Graph& graph) { return *graph.impl_; }
};

/// How the layers of a graph are identified.
struct GraphIdentity {
  std::string family;     ///< ModelSpec::family
  std::string prefix;     ///< of the kinds of all layers but the loss
  std::string loss_kind;  ///< empty: the prefix and the name of the loss
};

/// What graph_factory() returns.
ModelFactory graph_factory(std::function<void(Graph&)> make, GraphIdentity identity);

}  // namespace spillway
