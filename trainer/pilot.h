#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/profile.h"
#include "models/model.h"
#include "trainer/host_rates.h"
#include "trainer/profile_cache.h"

namespace spillway {

/// Says what layers cost before a run: time and peak bytes of one virtual node, once per distinct
/// layer (kind, parameter shapes, edge shapes). Runs on the calling thread; its memory is not any
/// device's.
class Pilot {
 public:
  /// `cache`: file where costs are kept between runs; empty: none.
  explicit Pilot(std::filesystem::path cache = {})
      : cache_(std::move(cache), this_build_and_machine()) {}
  /// Runs each layer that is not known yet.
  Profile measure(const Model& model);
  /// Times each layer of a measured model on the compute queue of a device, several virtual nodes
  /// in a row, once per distinct layer and `kind`. Nothing else may use the device meanwhile.
  std::vector<LayerTimes> measure_on(Device& device, const std::string& kind, const Model& model);
  /// Runs none of them: costs follow from shapes (trainer/estimate.h).
  Profile estimate(const ModelSpec& model);

 private:
  const HostRates& rates();

  ProfileCache cache_;
  std::optional<HostRates> rates_;
};

}  // namespace spillway
