#pragma once

#include <string>
#include <vector>

#include "runs/log/run_json.h"
#include "spillway/trial_plan.h"

namespace spillway {

/// Consecutive layers that a strategy places alike.
struct PlacedLayers {
  std::string layers;                ///< first and last: "embed - h.0.mlp"
  std::vector<std::string> letters;  ///< by track, as in TrialPlan::placement
};

/// A line for consecutive shards with the same letters; none without a strategy.
std::vector<PlacedLayers> placed_layers(const TrialPlan& plan);

/// [[layers, [letters]], ...], and back. Throws Json::exception.
Json placement_json(const std::vector<PlacedLayers>& placement);
std::vector<PlacedLayers> placement_of(const Json& json);

}  // namespace spillway
