#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/spec/profile.h"
#include "spillway/model.h"
#include "trainer/profile/host_rates.h"
#include "trainer/profile/profile_cache.h"

namespace spillway {

/// Says what layers cost before a run: time and peak bytes of one virtual node, once per distinct
/// layer (kind, parameter shapes, edge shapes). Runs on the calling thread with memory that is not
/// any device's, or on a device.
class Pilot {
 public:
  /// `cache`: file where costs and rates are kept between runs; empty: none. `load`: says how busy
  /// the machine is.
  explicit Pilot(std::filesystem::path cache = {}, std::function<double()> load = measure_load)
      : cache_(std::move(cache), this_build_and_kernels, std::move(load)) {}
  /// Runs each distinct layer, unless all are known already. `device`: on this one, which nothing
  /// else may use meanwhile, and whose copies are timed too; throws DoesNotFit where one layer
  /// does not fit there, with the least that it may need.
  Profile measure(const Model& model, Device* device = nullptr);
  /// Whether measure() would run nothing.
  bool knows(const ModelSpec& model, const Device* device) const;
  /// Of each kind of device one, by a name that says what the kind's costs depend on.
  using Kinds = std::map<std::string, std::shared_ptr<Device>>;
  /// Times each layer of a measured model on the compute queue of each device, several virtual
  /// nodes in a row, unless all are known. The devices take turns, so that what slows
  /// the machine for a while slows all. Nothing else may use them meanwhile.
  std::map<std::string, std::vector<LayerTimes>> measure_on(const Kinds& kinds, const Model& model);
  /// How many times longer the layer that takes most of a step takes while `threads` run it at
  /// once.
  double measure_crowding(int threads, const Model& model, const Profile& profile) const;
  /// Runs none of them: costs follow from shapes (trainer/profile/estimate.h).
  Profile estimate(const ModelSpec& model);

 private:
  /// Afterwards the cache knows all layers of the model.
  void measure_missing(const Model& model, Device* device);
  void measure_in_turn(const Model& model, Device& device);
  HostRates rates();

  ProfileCache cache_;
};

}  // namespace spillway
