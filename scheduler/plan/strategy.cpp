#include "scheduler/plan/strategy.h"

#include <algorithm>

namespace spillway {

bool Strategy::is_data_parallel() const {
  return std::ranges::all_of(
      stages, [&](const Stage& stage) { return stage.cells == stages.front().cells; });
}

std::vector<bool> Strategy::keeps_weights() const {
  constexpr int kNone = -1, kSeveral = -2;
  std::vector<int> sets(static_cast<std::size_t>(tracks), kNone);  // by track
  const auto set_of = [&](const Cell& cell) -> int& {
    return sets[static_cast<std::size_t>(cell.track)];
  };
  for (const Stage& stage : stages) {
    for (const Cell& cell : stage.cells) {
      int& set = set_of(cell);
      set = set == kNone || set == stage.set ? stage.set : kSeveral;
    }
  }
  std::vector<bool> keeps;
  for (const Stage& stage : stages) {
    keeps.push_back(!roams() && std::ranges::none_of(stage.cells, [&](const Cell& cell) {
      return set_of(cell) == kSeveral;
    }));
  }
  return keeps;
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
