#include "trainer/pilot.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <vector>

#include "core/cpu/activation_counter.h"
#include "core/ids.h"
#include "core/kernels.h"
#include "trainer/counting_allocator.h"
#include "trainer/estimate.h"
#include "trainer/range_runner.h"

namespace spillway {
namespace {

/// Memory of its own, filled with small normal numbers: costs do not depend on the values.
class Buffer {
 public:
  explicit Buffer(const TensorSpec& spec)
      : storage_((spec.bytes() + kAlignment) / sizeof(float) + kAlignment / sizeof(float)) {
    if (spec.dtype == DType::f32) {
      kernels::fill_normal(floats(), static_cast<std::size_t>(spec.elements()), 0.02, {});
    }
  }
  std::byte* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    return reinterpret_cast<std::byte*>(round_up(address, kAlignment));
  }
  float* floats() { return reinterpret_cast<float*>(data()); }

 private:
  std::vector<float> storage_;
};

Profile with_rates(const HostRates& rates) {
  return {.copy_bytes_per_s = rates.copy_bytes_per_s,
          .update_bytes_per_s = rates.update_bytes_per_s,
          .reduce_bytes_per_s = rates.reduce_bytes_per_s};
}

std::string cost_key(const ModelSpec& model, const LayerSpec& layer) {
  std::string key = layer.kind;
  const auto append = [&](const TensorSpec& tensor) {
    key += "|" + std::to_string(static_cast<int>(tensor.dtype));
    for (const Dim& dim : tensor.dims) key += "," + std::to_string(dim.size);
  };
  for (int p : layer.params) {
    append(model.params[at(p)].tensor);
    if (!model.params[at(p)].trainable) key += ",frozen";
  }
  for (const auto* edges : {&layer.inputs, &layer.outputs}) {
    for (int e : *edges) append(model.edges[at(e)].tensor);
  }
  return key;
}

}  // namespace

LayerProfile Pilot::measure_layer(const Model& model, int layer) {
  const LayerSpec& spec = model.spec.layers[at(layer)];
  std::vector<Buffer> params;
  for (int p : spec.params) params.emplace_back(model.spec.params[at(p)].tensor);
  std::vector<std::byte*> pointers;
  for (Buffer& param : params) pointers.push_back(param.data());
  std::deque<Buffer> storage;
  RangeRunner::EdgeMemory inputs, outputs, gradients, input_gradients;
  const auto memory_of = [&](const EdgeSpec& edge) {
    return storage.emplace_back(edge.tensor).data();
  };
  for (int e : spec.inputs) {
    const EdgeSpec& edge = model.spec.edges[at(e)];
    inputs[e] = memory_of(edge);
    if (has_gradient(edge)) input_gradients[e] = memory_of(edge);
  }
  Bytes output_bytes = 0;
  for (int e : spec.outputs) {
    const EdgeSpec& edge = model.spec.edges[at(e)];
    outputs[e] = memory_of(edge);
    if (has_gradient(edge)) gradients[e] = memory_of(edge);
    output_bytes += edge.tensor.bytes();
  }

  LayerProfile profile;
  ActivationCounter meter("pilot");
  RangeRunner runner(model, {layer, layer + 1}, {}, [&](int) { return pointers; });
  runner.after_forward = [&](int) {
    profile.graph_retained = meter.in_use();
    profile.graph_peak = meter.peak_since_begin();
  };
  const MeterScope scope(meter);
  const auto forward = [&] {
    meter.begin_op(std::numeric_limits<Bytes>::max());
    runner.forward(inputs, outputs);
  };
  const auto backward = [&] {
    meter.begin_op(std::numeric_limits<Bytes>::max());
    runner.backward(inputs, gradients, input_gradients, [](int, int, const float*) {});
  };
  forward();
  profile.forward_peak = meter.peak_since_begin();
  backward();
  // Inside a longer range the gradient of the output is an activation of its own.
  profile.backward_peak = meter.peak_since_begin() + output_bytes;
  profile.forward_s = median_seconds(forward);
  profile.backward_s = median_seconds(backward);
  return profile;
}

Profile Pilot::measure(const Model& model) {
  initialize_torch();
  Profile profile = with_rates(rates());
  for (int l = 0; l < static_cast<int>(model.layers.size()); ++l) {
    const std::string key = cost_key(model.spec, model.spec.layers[at(l)]);
    auto known = cache_.find(key);
    if (!known) {
      known = measure_layer(model, l);
      cache_.add(key, *known);
    }
    profile.layers.push_back(*known);
  }
  cache_.save();
  return profile;
}

Profile Pilot::estimate(const ModelSpec& model) {
  Profile profile = with_rates(rates());
  profile.layers = estimate_layers(model, rates().matmul_flops_per_s, rates().copy_bytes_per_s);
  return profile;
}

const HostRates& Pilot::rates() {
  if (!rates_) rates_ = measure_host_rates();
  return *rates_;
}

}  // namespace spillway
