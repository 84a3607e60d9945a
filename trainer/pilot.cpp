#include "trainer/pilot.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "core/cpu/activation_counter.h"
#include "core/ids.h"
#include "core/kernels.h"
#include "trainer/counting_allocator.h"
#include "trainer/range_runner.h"

namespace spillway {
namespace {

constexpr int kRepeats = 3;

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

template <typename Work>
double median_seconds(const Work& work) {
  std::array<double, kRepeats> seconds{};
  for (double& s : seconds) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::sort(seconds);
  return seconds[kRepeats / 2];
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

void Pilot::measure_host() {
  constexpr std::int64_t kElements = 1 << 20;
  const TensorSpec spec{DType::f32, {{"element", kElements}}};
  Buffer a(spec), b(spec), c(spec), d(spec);
  const double bytes = static_cast<double>(spec.bytes());
  copy_bytes_per_s_ =
      bytes / median_seconds([&] { std::memcpy(a.data(), b.data(), spec.bytes()); });
  reduce_bytes_per_s_ =
      bytes / median_seconds([&] { kernels::squared_norm(a.floats(), kElements); });
  std::memset(c.data(), 0, spec.bytes());
  update_bytes_per_s_ = bytes / median_seconds([&] {
                          kernels::adamw(a.floats(), b.floats(), c.floats(), d.floats(), kElements,
                                         {.learning_rate = 1e-3f});
                        });
}

Profile Pilot::measure(const Model& model) {
  initialize_torch();
  if (copy_bytes_per_s_ == 0) measure_host();
  Profile profile;
  for (int l = 0; l < static_cast<int>(model.layers.size()); ++l) {
    const std::string key = cost_key(model.spec, model.spec.layers[at(l)]);
    if (!known_.contains(key)) known_[key] = measure_layer(model, l);
    profile.layers.push_back(known_.at(key));
  }
  profile.copy_bytes_per_s = copy_bytes_per_s_;
  profile.update_bytes_per_s = update_bytes_per_s_;
  profile.reduce_bytes_per_s = reduce_bytes_per_s_;
  return profile;
}

}  // namespace spillway
