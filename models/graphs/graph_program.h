#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "models/graphs/exported_spec.h"
#include "models/graphs/node_call.h"
#include "spillway/model.h"

namespace spillway {

/// A graph as calls of operators, with everything found and checked before. It has no state, so any
/// number of threads may run it.
class GraphProgram {
 public:
  /// What a graph gets from its layer.
  struct Given {
    int num_values = 0;                ///< inputs, parameters and constants
    std::vector<int> statistics = {};  ///< those that are averaged statistics
  };

  /// `place` begins messages: "layer 'h.0'". Throws Error if the graph cannot be run: like
  /// NodeCall, for a node that writes to what the layer gets, or for wrong arguments of Spillway's
  /// own operators.
  GraphProgram(const ExportedGraph& graph, const Given& given, std::string place);

  /// The statistics that it observes in training, in the order of observations.
  const std::vector<int>& observed() const { return observed_; }
  /// `values`: those that the graph gets. In training the observations are appended.
  at::Tensor run(std::vector<at::Tensor> values, const LayerContext& context,
                 std::vector<at::Tensor>& observations) const;

 private:
  /// spillway::dropout
  struct Dropout {
    int x = 0;
    double p = 0;
    std::uint32_t draw = 0;
  };
  /// spillway::batch_norm; -1: no weight, no bias
  struct BatchNorm {
    int x = 0, weight = -1, bias = -1, mean = 0, variance = 0;
    double eps = 0;
  };
  struct Step {
    std::string place;
    std::variant<NodeCall, Dropout, BatchNorm> call;
    std::vector<int> last_uses;  ///< values that nothing reads later
  };

  Step step_of(const GraphNode& node, const Given& given);
  Dropout dropout_of(const GraphNode& node);
  BatchNorm batch_norm_of(const GraphNode& node, const Given& given);
  static std::vector<int> reads_of(const Step& step);
  void find_last_uses(const ExportedGraph& graph);
  void check_writes(const ExportedGraph& graph) const;
  void run_step(const Step& step, std::vector<at::Tensor>& values, const LayerContext& context,
                c10::Device device, std::vector<at::Tensor>& observations) const;

  std::string place_;
  int num_given_;
  int result_;
  bool checks_ = false;  ///< that no node changes what the layer gets
  std::uint32_t num_draws_ = 0;
  std::vector<Step> steps_;
  std::vector<int> observed_;
};

}  // namespace spillway
