#include "scheduler/plan/strategy.h"

#include <algorithm>
#include <optional>

namespace spillway {

bool Strategy::is_data_parallel() const {
  return std::ranges::all_of(
      stages, [&](const Stage& stage) { return stage.cells == stages.front().cells; });
}

bool Strategy::stays_together() const {
  return stages.size() > 1 && std::ranges::all_of(stages, [&](const Stage& stage) {
           return stage.set == stages.front().set;
         });
}

std::vector<bool> Strategy::keeps_weights() const {
  const auto index = [](const Cell& cell) { return static_cast<std::size_t>(cell.track); };
  std::vector<std::optional<int>> sets(static_cast<std::size_t>(tracks));  // by track: its first
  std::vector<bool> has_several(sets.size());
  for (const Stage& stage : stages) {
    for (const Cell& cell : stage.cells) {
      std::optional<int>& set = sets[index(cell)];
      if (!set) set = stage.set;
      if (*set != stage.set) has_several[index(cell)] = true;
    }
  }
  std::vector<bool> keeps;
  for (const Stage& stage : stages) {
    keeps.push_back(!roams() && std::ranges::none_of(stage.cells, [&](const Cell& cell) {
      return has_several[index(cell)];
    }));
  }
  return keeps;
}

Strategy data_parallel(const std::vector<LayerRange>& shards, const std::vector<GroupRange>& lanes,
                       bool stay) {
  Strategy strategy{.tracks = static_cast<int>(lanes.size())};
  std::vector<Cell> cells;
  for (GroupRange lane : lanes) cells.push_back({lane, static_cast<int>(cells.size())});
  int set = 0;
  for (LayerRange shard : shards) strategy.stages.push_back({shard, cells, stay ? 0 : set++});
  return strategy;
}

std::vector<LayerRange> layers_of(const Strategy& strategy) {
  std::vector<LayerRange> layers;
  for (const Stage& stage : strategy.stages) layers.push_back(stage.layers);
  return layers;
}

}  // namespace spillway
