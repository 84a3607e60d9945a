#include "trainer/profile/pilot.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/compute/run_on.h"
#include "trainer/profile/copy_rates.h"
#include "trainer/profile/dispatch_latency.h"
#include "trainer/profile/estimate.h"
#include "trainer/profile/pilot_passes.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/torch_gpu.h"
#include "trainer/torch/torch_threads.h"

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
    key += fmt::format("|{}", static_cast<int>(tensor.dtype));
    for (const Dim& dim : tensor.dims) key += fmt::format(",{}", dim.size);
  };
  for (int p : layer.params) {
    append(model.params[at(p)].tensor);
    if (model.params[at(p)].is_statistic()) {
      key += ",statistic";
    } else if (!model.params[at(p)].trainable) {
      key += ",frozen";
    } else if (model.params[at(p)].gradient != DType::f32) {
      key += ",rounded";
    }
  }
  for (const auto* edges : {&layer.inputs, &layer.outputs}) {
    for (int e : *edges) {
      append(model.edges[at(e)].tensor);
      if (!has_gradient(model.edges[at(e)])) key += ",fixed";
    }
  }
  if (!layer.outputs.empty()) return key;
  for (const MetricSpec& metric : model.metrics) {  // they count in the peak of an evaluation
    if (metric.num_sums > 0) key += fmt::format("|{},{}", metric.name, metric.num_sums);
  }
  return key;
}

/// Layers by the key of their costs: layers with the same key cost the same.
std::map<std::string, std::vector<int>> layers_by_cost(const ModelSpec& model) {
  std::map<std::string, std::vector<int>> layers;
  for (int l = 0; l < static_cast<int>(model.layers.size()); ++l) {
    layers[cost_key(model, model.layers[at(l)])].push_back(l);
  }
  return layers;
}

std::string times_key(const std::string& kind, const std::string& layer) {
  return fmt::format("{}: {}", kind, layer);
}

/// One layer per key; none if all keys are known.
template <typename IsKnown>
PilotLayers layers_to_measure(const Model& model, const IsKnown& is_known) {
  const auto numbers = layers_by_cost(model.spec);
  PilotLayers layers;
  if (std::ranges::all_of(numbers, [&](const auto& each) { return is_known(each.first); })) {
    return layers;
  }
  for (const auto& [key, alike] : numbers) {
    layers.emplace(key, std::make_unique<PilotLayer>(model, alike));
  }
  return layers;
}

}  // namespace

static std::string key_on(const Device* device, const std::string& layer) {
  return device ? times_key(device->exact_kind(), layer) : layer;
}

Profile Pilot::measure(const Model& model, Device* device) {
  initialize_torch();
  const OneTorchThread one_thread;
  Profile profile = with_rates(rates());
  measure_missing(model, device);
  if (device) profile.copy_bytes_per_s = *cache_.find_copy_rate(device->exact_kind());
  cache_.save();
  for (const LayerSpec& layer : model.spec.layers) {
    profile.layers.push_back(*cache_.find(key_on(device, cost_key(model.spec, layer))));
  }
  return profile;
}

MeasuredAt Pilot::measured_at(const ModelSpec& model, const Device* device) const {
  MeasuredAt worst{.unix_s = std::numeric_limits<std::int64_t>::max()};
  for (const LayerSpec& layer : model.layers) {
    const auto at = cache_.measured_at(key_on(device, cost_key(model, layer)));
    worst = {std::min(worst.unix_s, at->unix_s), std::max(worst.load, at->load)};
  }
  return worst;
}

bool Pilot::knows(const ModelSpec& model, const Device* device) const {
  return (!device || cache_.find_copy_rate(device->exact_kind())) &&
         std::ranges::all_of(layers_by_cost(model), [&](const auto& each) {
           return cache_.find(key_on(device, each.first)).has_value();
         });
}

void Pilot::measure_missing(const Model& model, Device* device) {
  if (device) return measure_in_turn(model, *device);
  const auto layers = layers_to_measure(
      model, [&](const std::string& key) { return cache_.find(key).has_value(); });
  if (layers.empty()) return;
  const auto measurement = cache_.begin_measurement();
  const auto measured = measure_layers(layers, nullptr);
  const MeasuredAt at = measurement.end();
  for (const auto& [key, profile] : measured) {
    if (!cache_.find(key)) cache_.add(key, profile, at);
  }
}

/// The lower bound of what the layer needs: it may request more after this allocation.
static DoesNotFit too_large(const LayerSpec& layer, const Device& device, const OutOfMemory& error,
                            bool before_it_ran) {
  const double activations = device.split().activation_share;
  const bool of_activations = device.split().dedicated_activations() && !before_it_ran;
  const double part = of_activations ? activations : 1 - activations;
  const auto lacking = static_cast<double>(error.requested - error.available) / part;
  return {"layer " + layer.name + " alone", Tier::device,
          device.budget() + static_cast<Bytes>(lacking), device.budget(),
          std::string("or ") + (of_activations ? "raise" : "lower") + " activation_share"};
}

/// Measures one layer at a time: the device's budget may hold no more.
void Pilot::measure_in_turn(const Model& model, Device& device) {
  if (knows(model.spec, &device)) return;
  if (device.gpu() >= 0) {
    run_on(device, [&] { bind_torch_thread(device.gpu(), device.compute().stream()); });
  }
  for (const auto& [layer, alike] : layers_by_cost(model.spec)) {
    if (cache_.find(key_on(&device, layer))) continue;
    PilotLayers one;
    try {
      one.emplace(layer, std::make_unique<PilotLayer>(model, std::vector{alike.front()}, &device));
      const auto measurement = cache_.begin_measurement();
      const LayerProfile profile = measure_layers(one, &device).at(layer);
      cache_.add(key_on(&device, layer), profile, measurement.end());
      cache_.save();  // the next layer may not fit
    } catch (const OutOfMemory& error) {
      if (error.tier != Tier::device) throw;
      throw too_large(model.spec.layers[at(alike.front())], device, error,
                      /*before_it_ran=*/one.empty());
    }
  }
  if (cache_.find_copy_rate(device.exact_kind())) return;
  const auto measurement = cache_.begin_measurement();
  // Per direction while both are in use, as in a step.
  const double rate = measure_copies(device).duplex / 2;
  cache_.add_copy_rate(device.exact_kind(), rate, measurement.end());
}

std::map<std::string, std::vector<LayerTimes>> Pilot::measure_on(const Kinds& kinds,
                                                                 const Model& model) {
  const auto layers = layers_to_measure(model, [&](const std::string& layer) {
    return std::ranges::all_of(kinds, [&](const auto& each) {
      return cache_.find_times(times_key(each.first, layer)).has_value();
    });
  });
  if (!layers.empty()) {
    const auto measurement = cache_.begin_measurement();
    const auto measured = time_layers(layers, kinds);
    const MeasuredAt at = measurement.end();
    for (const auto& [key, times] : measured) {  // known ones too, because kinds are compared
      cache_.add_times(times_key(key.first, key.second), times, at);
    }
    cache_.save();
  }
  std::map<std::string, std::vector<LayerTimes>> all;
  for (const auto& [kind, device] : kinds) {
    for (const LayerSpec& layer : model.spec.layers) {
      all[kind].push_back(*cache_.find_times(times_key(kind, cost_key(model.spec, layer))));
    }
  }
  return all;
}

double Pilot::measure_contention(int threads, const Model& model, const Profile& profile) {
  const auto alike = layers_by_cost(model.spec);
  const auto seconds = [&](const auto& each) {
    const LayerProfile& layer = profile.layers[at(each.second.front())];
    return static_cast<double>(each.second.size()) * (layer.forward_s + layer.backward_s);
  };
  const auto& [layer, most] = *std::ranges::max_element(alike, {}, seconds);
  return known_contention(threads, layer, [&]() -> std::function<void()> {
    return [repeated = std::make_shared<PilotLayer>(model, most)] {
      repeated->forward();
      repeated->backward();
    };
  });
}

double Pilot::estimate_contention(int threads) {
  return known_contention(threads, "matrix product", matrix_product);
}

double Pilot::measure_op_start(const std::string& kind, const Devices& devices,
                               const Model& model) {
  constexpr std::size_t kMost = 8;  // layers, from all over the model
  const auto alike = layers_by_cost(model.spec);
  const std::size_t stride = (alike.size() + kMost - 1) / kMost;
  std::map<std::string, std::vector<int>> chosen;
  std::string key = fmt::format("{} times {}", devices.size(), kind);
  std::size_t number = 0;
  for (const auto& each : alike) {
    if (number++ % stride != 0) continue;
    chosen.insert(each);
    key += "; " + each.first;
  }
  if (const auto known = cache_.find_op_start(key)) return *known;
  const auto measurement = cache_.begin_measurement();
  std::vector<PilotLayers> layers(devices.size());
  for (PilotLayers& of_device : layers) {
    for (const auto& [layer, numbers] : chosen) {
      of_device.emplace(layer, std::make_unique<PilotLayer>(model, numbers));
    }
  }
  const double seconds = time_op_start(layers, devices);
  cache_.add_op_start(key, seconds, measurement.end());
  cache_.save();
  return seconds;
}

double Pilot::measure_dispatch_latency() {
  if (!dispatch_latency_s_) dispatch_latency_s_ = spillway::measure_dispatch_latency();
  return *dispatch_latency_s_;
}

double Pilot::measure_link_delay(Bytes link_bytes_per_s, int computing) {
  const auto [delay, is_new] = link_delays_s_.try_emplace({link_bytes_per_s, computing});
  if (is_new) delay->second = spillway::measure_link_delay(link_bytes_per_s, computing);
  return delay->second;
}

double Pilot::known_contention(int threads, const std::string& work,
                               const std::function<std::function<void()>()>& make_work) {
  const std::string key = fmt::format("{} threads: {}", threads, work);
  if (const auto known = cache_.find_contention(key)) return *known;
  const auto measurement = cache_.begin_measurement();
  const double contention = spillway::measure_contention(threads, make_work);
  cache_.add_contention(key, contention, measurement.end());
  cache_.save();
  return contention;
}

Profile Pilot::estimate(const ModelSpec& model) {
  Profile profile = with_rates(rates());
  profile.layers = estimate_layers(model, rates().matmul_flops_per_s, rates().copy_bytes_per_s);
  return profile;
}

HostRates Pilot::rates() {
  if (!cache_.rates()) {
    const auto measurement = cache_.begin_measurement();
    const HostRates measured = measure_host_rates();
    cache_.set_rates(measured, measurement.end());
    cache_.save();
  }
  return *cache_.rates();
}

}  // namespace spillway
