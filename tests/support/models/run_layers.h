#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/base/fold.h"
#include "core/device/kernels.h"
#include "spillway/ids.h"
#include "spillway/model.h"

/// A model's layers without a session.
namespace spillway::testing {

/// No parameter is all zeros or ones, so that each has an effect; variances are positive.
inline std::vector<at::Tensor> random_parameters(const ModelSpec& spec) {
  std::vector<at::Tensor> params;
  for (std::uint32_t p = 0; p < spec.params.size(); ++p) {
    const ParamSpec& param = spec.params[p];
    if (param.tensor.dtype == DType::i64) {
      params.push_back(at::full({}, 7, at::kLong));
      continue;
    }
    const at::Tensor value = at::empty(param.tensor.shape());
    const double stddev = param.init.kind == InitSpec::Kind::normal ? param.init.stddev : 0.2;
    kernels::fill_normal(value.mutable_data_ptr<float>(), static_cast<std::size_t>(value.numel()),
                         stddev, {.seed = 5, .vn = p});
    if (param.init.kind == InitSpec::Kind::ones) value.add_(1).abs_();
    params.push_back(value.requires_grad_(param.trainable));
  }
  return params;
}

inline std::vector<std::string> layer_names(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const LayerSpec& layer : spec.layers) names.push_back(layer.name);
  return names;
}

inline LayerContext context_of(std::uint32_t layer, bool training = true) {
  return {.training = training, .random = {.seed = 2, .step = 4, .vn = 1, .stream = layer * 16}};
}

struct LayersResult {
  LayerResult last;
  std::map<std::string, at::Tensor> observed;  ///< by the statistic's name
};

/// All layers in order, connected as in the spec.
inline LayersResult run_layers(const Model& model, const std::vector<at::Tensor>& params,
                               const at::Tensor& batch, bool training = true) {
  std::vector<TreeSum<at::Tensor>> edges;
  for (const EdgeSpec& edge : model.spec.edges) edges.emplace_back(edge.makers);
  edges[0].add({}, batch);
  LayersResult result;
  for (std::uint32_t l = 0; l < model.layers.size(); ++l) {
    const LayerSpec& layer = model.spec.layers[l];
    std::vector<at::Tensor> in, values;
    std::vector<std::string> averages;
    for (const int e : layer.inputs) in.push_back(edges[at(e)].whole());
    for (const int p : layer.params) {
      values.push_back(params[at(p)]);
      if (model.spec.params[at(p)].is_observed()) averages.push_back(model.spec.params[at(p)].name);
    }
    const std::uint32_t draws_as =
        layer.draws_as < 0 ? l : static_cast<std::uint32_t>(layer.draws_as);
    result.last = model.layers[l]->forward(in, values, context_of(draws_as, training));
    const std::vector<at::Tensor>& observations = result.last.observations;
    EXPECT_EQ(observations.size(), training ? averages.size() : 0) << layer.name;
    for (std::size_t i = 0; i < observations.size(); ++i) {
      result.observed[averages[i]] = observations[i];
    }
    for (const int e : layer.outputs) {
      const int term = static_cast<int>(l) - model.spec.edges[at(e)].producer;
      edges[at(e)].add({term, term + 1}, result.last.output);
      EXPECT_EQ(result.last.output.sizes(), at::IntArrayRef(model.spec.edges[at(e)].tensor.shape()))
          << layer.name;
    }
  }
  return result;
}

/// |a - b| / |b|.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

}  // namespace spillway::testing
