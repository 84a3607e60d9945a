#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/spec/profile.h"
#include "scheduler/plan/lower.h"
#include "scheduler/plan/need.h"
#include "scheduler/plan/partition.h"
#include "spillway/spec.h"

/// A chain of equal layers as values, for tests of the scheduler.
namespace spillway::testing {

/// `num_layers` layers of `elements` parameters; activations of 64 elements.
inline ModelSpec chain(int num_layers, std::int64_t elements = 4096) {
  ModelSpec model{.family = "chain"};
  model.edges.push_back({"batch", {DType::i64, {{"sample", 2}}}, -1, false});
  for (int l = 0; l < num_layers; ++l) {
    const std::string name = "layer." + std::to_string(l);
    LayerSpec layer{.name = name, .kind = "layer", .params = {l}, .inputs = {l}};
    model.params.push_back({name + ".weight", {DType::f32, {{"channel", elements}}}, {}});
    if (l + 1 < num_layers) {
      layer.outputs = {static_cast<int>(model.edges.size())};
      model.edges.push_back({name, {DType::f32, {{"sample", 2}, {"channel", 32}}}, l});
    }
    model.layers.push_back(std::move(layer));
  }
  model.validate();
  return model;
}

/// The same with layers that compute in bf16.
inline ModelSpec bf16_chain(int num_layers, std::int64_t elements = 4096) {
  ModelSpec model = chain(num_layers, elements);
  for (ParamSpec& param : model.params) param.tensor.dtype = DType::bf16;
  return model;
}

inline Profile profile_of(const ModelSpec& model, double forward_s = 1e-3) {
  Profile profile{.copy_bytes_per_s = 1e9};
  profile.layers.assign(model.layers.size(), {.forward_s = forward_s,
                                              .backward_s = 2 * forward_s,
                                              .forward_peak = 2048,
                                              .graph_peak = 3072,
                                              .graph_retained = 1024,
                                              .backward_peak = 4096});
  return profile;
}

/// A job cut for `budget`, which it fits.
inline std::shared_ptr<const JobPlan> plan_job(const ModelSpec& model, const JobShape& shape,
                                               Bytes budget,
                                               OrderChoice order = OrderChoice::automatic,
                                               bool double_buffer = true) {
  const Profile profile = profile_of(model);
  const Partition cut = partition(model, profile, shape, budget, order, double_buffer);
  return std::make_shared<JobPlan>(lower(model, profile, shape, cut.shards, cut.vn_major));
}

/// Weights that a unit over `layers` holds.
inline Bytes weights_bytes(const ModelSpec& model, LayerRange layers) {
  const Profile profile = profile_of(model);
  return range_need(NeedTable(model, profile, JobShape{}), layers).weights();
}

inline Bytes least_budget(const ModelSpec& model, const JobShape& shape,
                          bool double_buffer = true) {
  return partition(model, profile_of(model), shape, 0, OrderChoice::shard_major, double_buffer)
      .smallest_budget;
}

}  // namespace spillway::testing
