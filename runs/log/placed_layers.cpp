#include "runs/log/placed_layers.h"

#include <fmt/format.h>

#include <string_view>

namespace spillway {
namespace {

/// The name of two shards together: "embed - h.0.mlp" and "h.1.attn" are "embed - h.1.attn".
std::string joined_names(const std::string& first, const std::string& last) {
  constexpr std::string_view kTo = " - ";
  const auto to = last.find(kTo);
  const std::string end = to == std::string::npos ? last : last.substr(to + kTo.size());
  return fmt::format("{}{}{}", first.substr(0, first.find(kTo)), kTo, end);
}

}  // namespace

std::vector<PlacedLayers> placed_layers(const TrialPlan& plan) {
  std::vector<PlacedLayers> placed;
  for (std::size_t s = 0; s < plan.placement.size(); ++s) {
    if (placed.empty() || placed.back().letters != plan.placement[s]) {
      placed.push_back({plan.shards[s], plan.placement[s]});
    } else {
      placed.back().layers = joined_names(placed.back().layers, plan.shards[s]);
    }
  }
  return placed;
}

Json placement_json(const std::vector<PlacedLayers>& placement) {
  Json json = Json::array();
  for (const PlacedLayers& placed : placement) json.push_back({placed.layers, placed.letters});
  return json;
}

std::vector<PlacedLayers> placement_of(const Json& json) {
  std::vector<PlacedLayers> placement;
  for (const Json& line : json) placement.push_back({line.at(0), line.at(1)});
  return placement;
}

}  // namespace spillway
