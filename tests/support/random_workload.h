#pragma once

#include <random>
#include <string>

#include "scheduler/lower.h"
#include "scheduler/partition.h"

/// Random models, profiles and shapes for property tests; a pure function of the generator.
namespace spillway::testing {

class RandomWorkload {
 public:
  explicit RandomWorkload(std::uint64_t seed) : random_(seed) {}

  int between(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return between(1, 100) <= percent; }

  /// A chain of 2..8 layers of unequal sizes; often the first and last layer share a parameter.
  ModelSpec model() {
    ModelSpec model;
    model.family = "random";
    const int num_layers = between(2, 8);
    model.edges.push_back({"batch", {DType::i64, {{"sample", between(1, 9)}}}, -1, false});
    const bool tied = chance(60);
    if (tied) model.params.push_back(parameter("tied"));
    for (int l = 0; l < num_layers; ++l) {
      const bool first = l == 0, last = l + 1 == num_layers;
      LayerSpec layer{"layer." + std::to_string(l), "random", {}, {}, {}};
      for (int p = between(first || last ? 0 : 1, 3); p > 0; --p) {
        layer.params.push_back(static_cast<int>(model.params.size()));
        model.params.push_back(parameter(layer.name + "." + std::to_string(p)));
      }
      if (tied && (first || last)) layer.params.push_back(0);
      layer.inputs.push_back(first ? 0 : static_cast<int>(model.edges.size()) - 1);
      if (last && !first && chance(70)) layer.inputs.push_back(0);
      if (!last) {
        layer.outputs.push_back(static_cast<int>(model.edges.size()));
        model.edges.push_back({"x" + std::to_string(l),
                               {DType::f32, {{"sample", 1}, {"channel", between(1, 800)}}}, l});
      }
      model.layers.push_back(std::move(layer));
    }
    model.validate();
    return model;
  }

  Profile profile(const ModelSpec& model) {
    Profile profile;
    for (const LayerSpec& layer : model.layers) {
      LayerProfile cost;
      const Bytes out = layer.outputs.empty()
                            ? 64
                            : model.edges[static_cast<std::size_t>(layer.outputs[0])].tensor.bytes();
      cost.forward_s = between(1, 1000) * 1e-6;
      cost.backward_s = cost.forward_s * between(20, 40) / 10;
      cost.forward_peak = out + static_cast<Bytes>(between(0, 4000));
      cost.graph_retained = out + static_cast<Bytes>(between(0, 4000));
      cost.graph_peak = cost.graph_retained + static_cast<Bytes>(between(0, 2000));
      cost.backward_peak = cost.graph_retained + static_cast<Bytes>(between(0, 9000));
      profile.layers.push_back(cost);
    }
    profile.copy_bytes_per_s = between(1, 100) * 1e6;
    return profile;
  }

  JobShape shape(int num_devices) {
    JobShape shape;
    shape.groups = between(1, 6);
    shape.virtual_nodes = shape.groups * between(1, 3);
    shape.lanes = between(1, std::min(shape.groups, num_devices));
    shape.eval_virtual_nodes = chance(50) ? between(1, 6) : 0;
    shape.max_steps = between(1, 4);
    shape.eval_steps = between(0, 2);
    return shape;
  }

 private:
  ParamSpec parameter(const std::string& name) {
    return {name, {DType::f32, {{"channel", between(1, 3000)}}}, {}};
  }

  std::mt19937_64 random_;
};

}  // namespace spillway::testing
