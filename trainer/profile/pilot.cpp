#include "trainer/profile/pilot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <ranges>
#include <string>
#include <vector>

#include "core/base/thread_cpu_time.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/compute/run_on.h"
#include "trainer/profile/copy_rates.h"
#include "trainer/profile/dispatch_latency.h"
#include "trainer/profile/estimate.h"
#include "trainer/profile/pilot_layer.h"
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

/// Measures bytes. The layer must have run before: a thread's first product takes more.
LayerProfile measure_peaks(PilotLayer& layer) {
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
  layer.after_graph = nullptr;
  return profile;
}

/// On a GPU, or, without one, on this thread.
void run_on(Device* device, const std::function<void()>& work) {
  device ? spillway::run_on(*device, work) : work();
}

double seconds_on(Device* device, const std::function<void()>& work) {
  return seconds_of([&] { run_on(device, work); });
}

/// The layers to measure, by key.
using PilotLayers = std::map<std::string, std::unique_ptr<PilotLayer>>;

/// Runs the layers in the order of a step: forward through all of them, then backward.
template <typename Forward, typename Backward>
void pass_through(const PilotLayers& layers, const Forward& forward, const Backward& backward) {
  for (const auto& [key, layer] : layers) forward(key, [&] { layer->forward(); });
  for (const auto& [key, layer] : std::views::reverse(layers)) {
    backward(key, [&] { layer->backward(); });
  }
}

/// Measures over whole passes: a layer that runs repeatedly would find its code in the caches.
std::map<std::string, LayerProfile> measure_layers(const PilotLayers& layers, Device* device) {
  std::map<std::string, LayerProfile> profiles;
  std::map<std::string, std::vector<double>> forward_s, backward_s, merge_s;
  for (const auto& [key, layer] : layers) {
    run_on(device, [&] {
      layer->forward();
      layer->backward();
      profiles[key] = measure_peaks(*layer);
    });
  }
  const auto note = [&](std::map<std::string, std::vector<double>>& all, const std::string& key,
                        const std::function<void()>& work) {
    all[key].push_back(seconds_on(device, work));
  };
  const auto pass = [&] {
    pass_through(
        layers, [&](auto& key, const auto& work) { note(forward_s, key, work); },
        [&](auto& key, const auto& work) { note(backward_s, key, work); });
    for (const auto& [key, layer] : layers) note(merge_s, key, [&] { layer->merge(); });
  };
  repeat_measurement(pass, 2 * layers.size() * kPerPart);
  for (auto& [key, profile] : profiles) {
    profile.forward_s = expected(forward_s[key]);
    profile.backward_s = expected(backward_s[key]);
    profile.merge_s = expected(merge_s[key]);
  }
  return profiles;
}

using Clock = std::chrono::steady_clock;
using Seconds = std::array<double, kPilotSizes.size()>;

Seconds expected_by_size(const std::vector<Seconds>& all) {
  Seconds result;
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::vector<double> of_size;
    for (const Seconds& seconds : all) of_size.push_back(seconds[i]);
    result[i] = expected(of_size);
  }
  return result;
}

using LayerSeconds = std::map<std::string, Seconds>;

/// One pass as in measure_layers(), with each layer kPilotSizes[size] times in a row, as one op of
/// the queue: a slowed device sleeps after each op.
void time_pass(const PilotLayers& layers, Queue& queue, std::size_t size, LayerSeconds& forward_s,
               LayerSeconds& backward_s) {
  double inside_s = 0;
  const auto time = [&](Seconds& seconds, const std::function<void()>& work) {
    seconds[size] = seconds_of([&] {
      for (int i = 0; i < kPilotSizes[size]; ++i) work();
    });
    inside_s += seconds[size];
  };
  Clock::time_point begin, end;
  queue.enqueue([&] { begin = Clock::now(); });
  queue.enqueue([&] {
    pass_through(
        layers, [&](auto& key, const auto& work) { time(forward_s[key], work); },
        [&](auto& key, const auto& work) { time(backward_s[key], work); });
  });
  queue.enqueue([&] { end = Clock::now(); });
  queue.record().wait();
  // Distributes the queue's own time, above all an imitated slowdown, among all layers.
  const double factor = std::chrono::duration<double>(end - begin).count() / inside_s;
  for (LayerSeconds* all : {&forward_s, &backward_s}) {
    for (auto& [key, seconds] : *all) seconds[size] *= factor;
  }
}

/// Passes on all these devices at once, with one op per layer and direction. The layers are those
/// of one device each. Returns the mean seconds of a pass.
double passes_in_ops(const std::vector<PilotLayers>& layers, const Pilot::Devices& devices) {
  std::vector<std::pair<Clock::time_point, Clock::time_point>> times(devices.size());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    Queue& queue = devices[d]->compute();
    queue.enqueue([&times, d] { times[d].first = Clock::now(); });
    const auto enqueue = [&](const std::string&, const auto& work) { queue.enqueue(work); };
    pass_through(layers[d], enqueue, enqueue);
    queue.enqueue([&times, d] { times[d].second = Clock::now(); });
  }
  for (Device* device : devices) device->compute().record().wait();
  std::chrono::duration<double> sum(0);
  for (const auto& [begin, end] : times) sum += end - begin;
  return sum.count() / static_cast<double>(devices.size());
}

/// See Pilot::measure_op_start().
double time_op_start(const std::vector<PilotLayers>& layers, const Pilot::Devices& devices) {
  const auto run = [](const std::string&, const auto& work) { work(); };
  const auto pass = [&] { pass_through(layers[0], run, run); };
  const OneTorchThread one_thread;
  std::vector<double> whole_s, in_ops_s;
  const auto round = [&] {
    pass();  // fills the caches
    // Slowed devices sleep in proportion to this time.
    const auto begin = thread_cpu_time();
    pass();
    whole_s.push_back((thread_cpu_time() - begin).count());
    in_ops_s.push_back(passes_in_ops(layers, devices));
  };
  const std::size_t ops = 2 * layers[0].size();
  repeat_measurement(round, 2 * ops * kPerPart);
  const double besides_s = expected(in_ops_s) - devices[0]->slowdown() * expected(whole_s);
  return std::max(1e-9, besides_s / static_cast<double>(ops));  // the cache keeps no zeros
}

std::string times_key(const std::string& kind, const std::string& layer) {
  return fmt::format("{}: {}", kind, layer);
}

/// Times by times_key(). The layers have been measured before, so they do not throw.
std::map<std::string, LayerTimes> time_layers(const PilotLayers& layers,
                                              const Pilot::Kinds& kinds) {
  std::map<std::string, std::vector<Seconds>> forward_s, backward_s;
  const auto turn = [&](const std::string& kind, Queue& queue) {
    LayerSeconds forward, backward;
    for (std::size_t size = 0; size < kPilotSizes.size(); ++size) {
      time_pass(layers, queue, size, forward, backward);
    }
    for (const auto& [key, seconds] : forward) forward_s[times_key(kind, key)].push_back(seconds);
    for (const auto& [key, seconds] : backward) backward_s[times_key(kind, key)].push_back(seconds);
  };
  const auto pass = [&] {
    for (const auto& [kind, device] : kinds) turn(kind, device->compute());
  };
  repeat_measurement(pass, 2 * layers.size() * kinds.size() * kPerPart);
  std::map<std::string, LayerTimes> times;
  for (const auto& [key, all] : forward_s) {
    times[key] = {.forward_s = expected_by_size(all),
                  .backward_s = expected_by_size(backward_s[key])};
  }
  return times;
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
    run_on(&device, [&] { bind_torch_thread(device.gpu(), device.compute().stream()); });
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
    for (const auto& [key, times] : measured) {
      cache_.add_times(key, times, at);  // known ones too, because kinds are compared
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
