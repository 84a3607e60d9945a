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
    if (model.params[at(p)].is_statistic()) {
      key += ",statistic";
    } else if (!model.params[at(p)].trainable) {
      key += ",frozen";
    }
  }
  for (const auto* edges : {&layer.inputs, &layer.outputs}) {
    for (int e : *edges) append(model.edges[at(e)].tensor);
  }
  return key;
}

/// All that one layer reads and writes.
struct LayerMemory {
  LayerMemory(const ModelSpec& model, const LayerSpec& layer) {
    for (int p : layer.params) {
      const TensorSpec& tensor = model.params[at(p)].tensor;
      elements.push_back(static_cast<std::size_t>(tensor.elements()));
      pointers.push_back(new_buffer(tensor).data());
      sums.push_back(new_buffer(tensor).floats());
    }
    for (int e : layer.inputs) add(model.edges[at(e)], e, inputs, input_gradients);
    for (int e : layer.outputs) {
      add(model.edges[at(e)], e, outputs, gradients);
      output_bytes += model.edges[at(e)].tensor.bytes();
    }
  }
  void fold(int param, const float* term) const {
    kernels::add(sums[at(param)], term, elements[at(param)]);
  }

  std::vector<std::byte*> pointers;   // of the parameters
  std::vector<float*> sums;           // of their gradients or observations
  std::vector<std::size_t> elements;  // of each
  RangeRunner::EdgeMemory inputs, outputs, gradients, input_gradients;
  Bytes output_bytes = 0;

 private:
  Buffer& new_buffer(const TensorSpec& tensor) { return buffers_.emplace_back(tensor); }
  void add(const EdgeSpec& edge, int number, RangeRunner::EdgeMemory& values,
           RangeRunner::EdgeMemory& of_gradients) {
    values[number] = new_buffer(edge.tensor).data();
    if (has_gradient(edge)) of_gradients[number] = new_buffer(edge.tensor).data();
  }

  std::deque<Buffer> buffers_;
};

}  // namespace

LayerProfile Pilot::measure_layer(const Model& model, int layer) {
  LayerMemory memory(model.spec, model.spec.layers[at(layer)]);
  LayerProfile profile;
  ActivationCounter meter("pilot");
  const auto parameters = [&](int) { return memory.pointers; };
  RangeRunner runner(model, {layer, layer + 1}, {}, parameters);
  const RangeRunner evaluation(model, {layer, layer + 1}, {.training = false}, parameters);
  runner.after_forward = [&](int) {
    profile.graph_retained = meter.in_use();
    profile.graph_peak = meter.peak_since_begin();
  };
  const MeterScope scope(meter);
  const auto forward_of = [&](const RangeRunner& run) {
    meter.begin_op(std::numeric_limits<Bytes>::max());
    run.forward(memory.inputs, memory.outputs);
    profile.forward_peak = std::max(profile.forward_peak, meter.peak_since_begin());
  };
  const auto forward = [&] { forward_of(runner); };
  const auto fold = [&](int, int param, const float* term) {
    if (term) memory.fold(param, term);
  };
  const auto backward = [&] {
    meter.begin_op(std::numeric_limits<Bytes>::max());
    runner.backward(memory.inputs, memory.gradients, memory.input_gradients, fold);
  };
  forward();
  forward_of(evaluation);
  backward();
  // Inside a longer range the gradient of the output is an activation of its own.
  profile.backward_peak = meter.peak_since_begin() + memory.output_bytes;
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
