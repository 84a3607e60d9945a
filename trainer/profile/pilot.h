#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device/device.h"
#include "core/spec/profile.h"
#include "spillway/model.h"
#include "spillway/units.h"
#include "trainer/profile/host_rates.h"
#include "trainer/profile/profile_cache.h"

namespace spillway {

/// Measures the costs of layers before a run: time and peak bytes of one virtual node, once per
/// distinct layer (kind, parameter shapes, edge shapes). Runs on the calling thread with memory of
/// its own, or on a device.
class Pilot {
 public:
  /// `cache`: file that keeps costs and rates between runs; empty: none. `load`: measures how busy
  /// the machine is. `busy`: which of the costs in the file count.
  explicit Pilot(std::filesystem::path cache = {}, std::function<double()> load = measure_load,
                 BusyCosts busy = BusyCosts::drop)
      : cache_(std::move(cache), this_build_and_kernels, std::move(load), busy) {}
  /// Runs each distinct layer whose costs are unknown. With a `device`, which nothing else may use
  /// in the meantime, it also times copies, and throws DoesNotFit with a lower bound of the budget
  /// if a layer does not fit.
  Profile measure(const Model& model, Device* device = nullptr);
  /// When the oldest of a measured model's layers was measured, and under which load at most.
  MeasuredAt measured_at(const ModelSpec& model, const Device* device) const;
  /// Whether measure() would run nothing.
  bool knows(const ModelSpec& model, const Device* device) const;
  /// One device per kind, by a name that identifies all that the kind's costs depend on.
  using Kinds = std::map<std::string, std::shared_ptr<Device>>;
  /// Times each layer of a measured model on the compute queue of each device, several virtual
  /// nodes in a row, unless all are known. The devices take turns, so that other load slows all of
  /// them equally. Nothing else may use them in the meantime.
  std::map<std::string, std::vector<LayerTimes>> measure_on(const Kinds& kinds, const Model& model);
  /// CPU contention of the layer that dominates a step, with `threads` threads at once; measured
  /// unless it is known.
  double measure_contention(int threads, const Model& model, const Profile& profile);
  using Devices = std::vector<Device*>;
  /// What an op takes besides its layers on devices that are slowed, because processors work more
  /// slowly after a sleep, in which others use their caches: seconds, the mean over some layers of
  /// the model, while all these devices of one kind compute. Measured unless it is known.
  double measure_op_start(const std::string& kind, const Devices& devices, const Model& model);
  /// See trainer/profile/dispatch_latency.h. Measured once.
  double measure_dispatch_latency();
  /// See trainer/profile/host_rates.h. Measured once for the same arguments.
  double measure_link_delay(Bytes link_bytes_per_s, int computing);
  /// Estimates costs from shapes without running layers (trainer/profile/estimate.h).
  Profile estimate(const ModelSpec& model);
  /// CPU contention of products, likewise.
  double estimate_contention(int threads);

 private:
  /// Afterwards the cache knows all layers of the model.
  void measure_missing(const Model& model, Device* device);
  void measure_in_turn(const Model& model, Device& device);
  HostRates rates();
  double known_contention(int threads, const std::string& work,
                          const std::function<std::function<void()>()>& make_work);

  ProfileCache cache_;
  // Not in the file: they depend on what else runs. The first measurement counts for a session, so
  // that its plans agree.
  std::optional<double> dispatch_latency_s_;
  std::map<std::pair<Bytes, int>, double> link_delays_s_;
};

}  // namespace spillway
