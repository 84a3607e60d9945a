#include "scheduler/plan/strategy.h"

#include <algorithm>

namespace spillway {

bool Strategy::is_data_parallel() const {
  return std::ranges::all_of(
      stages, [&](const Stage& stage) { return stage.cells == stages.front().cells; });
}

bool Strategy::keeps_weights(const Stage& stage) const {
  const auto shares_track = [&](const Stage& other) {
    return std::ranges::any_of(stage.cells, [&](const Cell& cell) {
      return std::ranges::count(other.cells, cell.track, &Cell::track) > 0;
    });
  };
  return !roams() && std::ranges::all_of(stages, [&](const Stage& other) {
    return other.set == stage.set || !shares_track(other);
  });
}

Strategy data_parallel(const std::vector<LayerRange>& shards,
                       const std::vector<GroupRange>& lanes) {
  Strategy strategy{.tracks = static_cast<int>(lanes.size())};
  std::vector<Cell> cells;
  for (GroupRange lane : lanes) cells.push_back({lane, static_cast<int>(cells.size())});
  for (LayerRange shard : shards) {
    strategy.stages.push_back({shard, cells, static_cast<int>(strategy.stages.size())});
  }
  return strategy;
}

std::vector<LayerRange> layers_of(const Strategy& strategy) {
  std::vector<LayerRange> layers;
  for (const Stage& stage : strategy.stages) layers.push_back(stage.layers);
  return layers;
}

}  // namespace spillway
