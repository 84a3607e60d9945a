#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "models/graphs/exported_spec.h"

namespace spillway {

/// What is known of a graph without data: the shape and type of each value, and from which others
/// it is made.
class GraphFacts {
 public:
  /// A value that the graph gets.
  struct Given {
    std::vector<std::int64_t> shape;
    at::ScalarType type = at::kFloat;
    bool is_fixed = false;  ///< a constant or a part of the batch
  };

  /// Throws Error, with the operator, if one cannot run. Values must exist before they are read.
  /// The graph must outlive the facts.
  GraphFacts(const ExportedGraph& graph, const std::vector<Given>& given);

  const ExportedGraph& graph() const { return graph_; }
  const GraphNode& node(int number) const { return graph_.nodes[static_cast<std::size_t>(number)]; }
  int num_nodes() const { return static_cast<int>(graph_.nodes.size()); }
  int num_given() const { return num_given_; }
  bool is_given(int value) const { return value < num_given_; }
  /// The first output of a node; others follow.
  int output(int node) const { return outputs_[static_cast<std::size_t>(node)]; }
  /// The node that makes a value; -1: it is given.
  int maker(int value) const { return at(value).maker; }
  const std::vector<std::int64_t>& shape(int value) const { return at(value).shape; }
  at::ScalarType type(int value) const { return at(value).type; }
  /// Whether it is made of constants and of the batch alone. Any layer may compute it again.
  bool is_fixed(int value) const { return at(value).is_fixed; }
  bool is_pointwise(int node) const { return pointwise_[static_cast<std::size_t>(node)]; }
  /// The name of an operator that changes a value in place; empty: there is none.
  const std::string& writer() const { return writer_; }

  /// Adds the nodes from which `value` is made to `nodes`, as far as they are fixed or, without
  /// `only_fixed`, all of them. Stops at the values in `known`.
  void add_makers(int value, bool only_fixed, const std::set<int>& known,
                  std::set<int>& nodes) const;

 private:
  struct Value {
    std::vector<std::int64_t> shape;
    at::ScalarType type = at::kFloat;
    int maker = -1;
    bool is_fixed = false;
  };
  const Value& at(int value) const { return values_[static_cast<std::size_t>(value)]; }
  /// Computes shapes and types. `values`: those of the outputs are appended.
  void run(int node, std::vector<at::Tensor>& values);

  const ExportedGraph& graph_;
  int num_given_;
  std::vector<Value> values_;
  std::vector<int> outputs_;     // by node
  std::vector<bool> pointwise_;  // by node
  std::string writer_;
};

}  // namespace spillway
