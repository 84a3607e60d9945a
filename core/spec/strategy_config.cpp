#include "spillway/strategy_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"

namespace spillway {

constexpr int kMostTracks = 1024;

static std::string field_of(std::size_t placement, const char* key) {
  return fmt::format("train.strategy.place[{}].{}", placement, key);
}

int StrategyConfig::num_tracks() const {
  int most = 0;
  for (const LayerPlacement& placement : place) {
    for (int track : placement.tracks) most = std::max(most, track);
  }
  return most + 1;
}

void StrategyConfig::validate() const {
  for (std::size_t i = 0; i < place.size(); ++i) {
    const auto& [layers, tracks, pieces, set] = place[i];
    const auto require = [&](bool holds, const char* key, const std::string& problem) {
      if (!holds) throw ConfigError(field_of(i, key), 0, problem);
    };
    require(!layers.empty(), "layers", "is empty; name layers, such as h.*, or * for all");
    require(!tracks.empty(), "tracks", "is empty; name tracks, such as [0, 1]");
    for (int track : tracks) {
      require(track >= 0 && track < kMostTracks, "tracks",
              fmt::format("has {}, must be from 0 to {}", track, kMostTracks - 1));
    }
    require(
        pieces >= 1 && tracks.size() % static_cast<std::size_t>(pieces) == 0, "pieces",
        fmt::format("is {}, must divide the number of tracks, which is {}", pieces, tracks.size()));
  }
  const auto require = [&](const char* key, int value) {
    if (value >= 0) return;
    throw ConfigError(fmt::format("train.strategy.{}", key), 0,
                      fmt::format("is {}, must be 0 or more", value));
  };
  require("chunk", chunk);
  require("window", window);
  require("num_layers", num_layers);
}

}  // namespace spillway
