#include "trainer/profile/pilot_passes.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <ranges>

#include "core/base/thread_cpu_time.h"
#include "trainer/compute/run_on.h"
#include "trainer/profile/host_rates.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {
namespace {

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

/// Consecutive layers that keep their graphs until the backward of the last one, as in an op.
using PilotRange = std::vector<const PilotLayers::value_type*>;

/// The model's layers in order, in ranges whose graphs do not fit into the caches; the last range
/// has what is left.
std::vector<PilotRange> ranges_of(const PilotLayers& layers, Device* device) {
  std::map<int, const PilotLayers::value_type*> in_order;
  for (const auto& each : layers) {
    for (int number : each.second->numbers()) in_order[number] = &each;
  }
  std::map<const PilotLayer*, Bytes> retained;
  for (const auto& [key, layer] : layers) {
    run_on(device, [&] {
      layer->make_graph();
      retained[layer.get()] = layer->meter().in_use();
      layer->backward_of_graph();
    });
  }
  std::vector<PilotRange> ranges(1);
  Bytes bytes = 0;
  for (const auto& [number, each] : in_order) {
    if (bytes > kBeyondCaches) {
      ranges.emplace_back();
      bytes = 0;
    }
    ranges.back().push_back(each);
    bytes += retained.at(each->second.get());
  }
  return ranges;
}

/// Runs the layers in the order of a step: forward through all of them, forward with graphs, and
/// backward. `forward` and `backward` get a layer's key and what they must call; backward() of a
/// layer may be two calls.
template <typename Forward, typename Backward>
void pass_through(const PilotRange& range, const Forward& forward, const Backward& backward) {
  for (const auto* each : range) forward(each->first, [each] { each->second->forward(); });
  if (range.size() == 1) {
    return backward(range[0]->first, [layer = range[0]->second.get()] { layer->backward(); });
  }
  for (const auto* each : range) backward(each->first, [each] { each->second->make_graph(); });
  for (const auto* each : std::views::reverse(range)) {
    backward(each->first, [each] { each->second->backward_of_graph(); });
  }
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

/// One pass in which kPilotSizes[size] virtual nodes go through each range, as one op of the queue:
/// a slowed device sleeps after each op. Seconds are summed over layers that are alike.
void time_pass(const std::vector<PilotRange>& ranges, Queue& queue, std::size_t size,
               LayerSeconds& forward_s, LayerSeconds& backward_s) {
  double inside_s = 0;
  const auto time = [&](Seconds& seconds, const std::function<void()>& work) {
    const double work_s = seconds_of(work);
    seconds[size] += work_s;
    inside_s += work_s;
  };
  Clock::time_point begin, end;
  queue.enqueue([&] { begin = Clock::now(); });
  queue.enqueue([&] {
    for (const PilotRange& range : ranges) {
      for (int vn = 0; vn < kPilotSizes[size]; ++vn) {
        pass_through(
            range, [&](auto& key, const auto& work) { time(forward_s[key], work); },
            [&](auto& key, const auto& work) { time(backward_s[key], work); });
      }
    }
  });
  queue.enqueue([&] { end = Clock::now(); });
  queue.record().wait();
  // Distributes the queue's own time, above all an imitated slowdown, among all layers.
  const double factor = std::chrono::duration<double>(end - begin).count() / inside_s;
  for (LayerSeconds* all : {&forward_s, &backward_s}) {
    for (auto& [key, seconds] : *all) seconds[size] *= factor;
  }
}

/// Passes on all these devices at once, with ops of one layer. The ranges are those of one device
/// each. Returns the mean seconds of a pass.
double passes_in_ops(const std::vector<std::vector<PilotRange>>& ranges,
                     const std::vector<Device*>& devices) {
  std::vector<std::pair<Clock::time_point, Clock::time_point>> times(devices.size());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    Queue& queue = devices[d]->compute();
    queue.enqueue([&times, d] { times[d].first = Clock::now(); });
    const auto enqueue = [&](const std::string&, const auto& work) { queue.enqueue(work); };
    for (const PilotRange& range : ranges[d]) pass_through(range, enqueue, enqueue);
    queue.enqueue([&times, d] { times[d].second = Clock::now(); });
  }
  for (Device* device : devices) device->compute().record().wait();
  std::chrono::duration<double> sum(0);
  for (const auto& [begin, end] : times) sum += end - begin;
  return sum.count() / static_cast<double>(devices.size());
}

double alike(const PilotLayer& layer) { return static_cast<double>(layer.numbers().size()); }

}  // namespace

std::map<std::string, LayerProfile> measure_layers(const PilotLayers& layers, Device* device) {
  const auto ranges = ranges_of(layers, device);
  std::map<std::string, LayerProfile> profiles;
  for (const auto& [key, layer] : layers) {
    run_on(device, [&] { profiles[key] = measure_peaks(*layer); });
  }
  std::map<std::string, std::vector<double>> forward_s, backward_s, merge_s;
  const auto pass = [&] {
    std::map<std::string, double> forward, backward;
    for (const PilotRange& range : ranges) {
      pass_through(
          range, [&](auto& key, const auto& work) { forward[key] += seconds_on(device, work); },
          [&](auto& key, const auto& work) { backward[key] += seconds_on(device, work); });
    }
    for (const auto& [key, layer] : layers) {
      forward_s[key].push_back(forward[key] / alike(*layer));
      backward_s[key].push_back(backward[key] / alike(*layer));
      merge_s[key].push_back(seconds_on(device, [&] { layer->merge(); }));
    }
  };
  repeat_measurement(pass, 2 * layers.size() * kPerPart);
  for (auto& [key, profile] : profiles) {
    profile.forward_s = expected(forward_s[key]);
    profile.backward_s = expected(backward_s[key]);
    profile.merge_s = expected(merge_s[key]);
  }
  return profiles;
}

KindTimes time_layers(const PilotLayers& layers,
                      const std::map<std::string, std::shared_ptr<Device>>& kinds) {
  const auto ranges = ranges_of(layers, nullptr);
  std::map<KindTimes::key_type, std::vector<Seconds>> forward_s, backward_s;
  const auto turn = [&](const std::string& kind, Queue& queue) {
    LayerSeconds forward, backward;
    for (std::size_t size = 0; size < kPilotSizes.size(); ++size) {
      time_pass(ranges, queue, size, forward, backward);
    }
    for (const auto& [key, layer] : layers) {
      for (double& seconds : forward[key]) seconds /= alike(*layer);
      for (double& seconds : backward[key]) seconds /= alike(*layer);
      forward_s[{kind, key}].push_back(forward[key]);
      backward_s[{kind, key}].push_back(backward[key]);
    }
  };
  const auto pass = [&] {
    for (const auto& [kind, device] : kinds) turn(kind, device->compute());
  };
  repeat_measurement(pass, 2 * layers.size() * kinds.size() * kPerPart);
  KindTimes times;
  for (const auto& [key, all] : forward_s) {
    times[key] = {.forward_s = expected_by_size(all),
                  .backward_s = expected_by_size(backward_s[key])};
  }
  return times;
}

double time_op_start(const std::vector<PilotLayers>& layers, const std::vector<Device*>& devices) {
  std::vector<std::vector<PilotRange>> ranges;
  for (const PilotLayers& of_device : layers) ranges.push_back(ranges_of(of_device, nullptr));
  std::size_t ops = 0;
  const auto run = [&](const std::string&, const auto& work) {
    work();
    ++ops;
  };
  const auto pass = [&] {
    ops = 0;
    for (const PilotRange& range : ranges[0]) pass_through(range, run, run);
  };
  const OneTorchThread one_thread;
  std::vector<double> whole_s, in_ops_s;
  const auto round = [&] {
    pass();  // fills the caches
    // Slowed devices sleep in proportion to this time.
    const auto begin = thread_cpu_time();
    pass();
    whole_s.push_back((thread_cpu_time() - begin).count());
    in_ops_s.push_back(passes_in_ops(ranges, devices));
  };
  repeat_measurement(round, 4 * layers[0].size() * kPerPart);
  const double besides_s = expected(in_ops_s) - devices[0]->slowdown() * expected(whole_s);
  return std::max(1e-9, besides_s / static_cast<double>(ops));  // the cache keeps no zeros
}

}  // namespace spillway
