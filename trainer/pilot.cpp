#include "trainer/pilot.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <vector>

#include "core/ids.h"
#include "trainer/counting_allocator.h"
#include "trainer/estimate.h"
#include "trainer/pilot_layer.h"

namespace spillway {
namespace {

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

LayerProfile measure_layer(const Model& model, int number) {
  PilotLayer layer(model, number);
  LayerProfile profile;
  layer.after_graph = [&] {
    profile.graph_retained = layer.meter().in_use();
    profile.graph_peak = layer.meter().peak_since_begin();
  };
  layer.forward();
  profile.forward_peak = layer.meter().peak_since_begin();
  layer.evaluate();
  profile.forward_peak = std::max(profile.forward_peak, layer.meter().peak_since_begin());
  layer.backward();
  // Inside a longer range the gradient of the output is an activation of its own.
  profile.backward_peak = layer.meter().peak_since_begin() + layer.output_bytes();
  profile.forward_s = median_seconds([&] { layer.forward(); });
  profile.backward_s = median_seconds([&] { layer.backward(); });
  return profile;
}

using Seconds = std::array<double, kPilotSizes.size()>;

/// On the queue: when so many calls of `work` have ended, since the first began.
Seconds time_calls(Queue& queue, const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  std::array<Clock::time_point, kPilotSizes.size() + 1> marks;
  int calls = 0;
  for (std::size_t i = 0; i < marks.size(); ++i) {
    for (; i > 0 && calls < kPilotSizes[i - 1]; ++calls) queue.enqueue(work);
    queue.enqueue([&mark = marks[i]] { mark = Clock::now(); });
  }
  queue.record().wait();
  Seconds seconds;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    seconds[i] = std::chrono::duration<double>(marks[i + 1] - marks[0]).count();
  }
  return seconds;
}

/// Medians, by size.
Seconds median_times(Queue& queue, const std::function<void()>& work) {
  std::array<std::vector<double>, kPilotSizes.size()> all;
  repeat_measurement([&] {
    const Seconds seconds = time_calls(queue, work);
    for (std::size_t i = 0; i < all.size(); ++i) all[i].push_back(seconds[i]);
  });
  Seconds medians;
  std::ranges::transform(all, medians.begin(), [](auto& seconds) { return median(seconds); });
  return medians;
}

/// On a layer that has been measured before, so that it is known not to throw.
LayerTimes time_layer(const Model& model, int number, Device& device) {
  PilotLayer layer(model, number);
  return {.forward_s = median_times(device.compute(), [&] { layer.forward(); }),
          .backward_s = median_times(device.compute(), [&] { layer.backward(); })};
}

}  // namespace

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

std::vector<LayerTimes> Pilot::measure_on(Device& device, const std::string& kind,
                                          const Model& model) {
  std::vector<LayerTimes> all;
  for (int l = 0; l < static_cast<int>(model.layers.size()); ++l) {
    const std::string key = kind + ": " + cost_key(model.spec, model.spec.layers[at(l)]);
    auto known = cache_.find_times(key);
    if (!known) {
      known = time_layer(model, l, device);
      cache_.add_times(key, *known);
    }
    all.push_back(*known);
  }
  cache_.save();
  return all;
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
