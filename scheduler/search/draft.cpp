#include "scheduler/search/draft.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "scheduler/plan/placement.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

/// "h.3." of "h.3.attn": all up to the last point, if there are several.
std::string block_of(const std::string& name) {
  const std::size_t last = name.rfind('.');
  const bool has_two = last != std::string::npos && name.find('.') != last;
  return has_two ? name.substr(0, last + 1) : "";
}

/// Whether the pattern of a block matches these layers and no others.
bool is_all_of(const std::string& block, const std::vector<WholeLayer>& layers, std::size_t begin,
               std::size_t end) {
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const bool is_inside = l >= begin && l < end;
    if (!is_inside && layers[l].name.starts_with(block)) return false;
  }
  return true;
}

/// Patterns for the layers [begin, end): whole blocks by one each.
std::vector<std::string> patterns(const std::vector<WholeLayer>& layers, std::size_t begin,
                                  std::size_t end) {
  if (begin == 0 && end == layers.size()) return {"*"};
  std::vector<std::string> found;
  for (std::size_t l = begin; l < end;) {
    const std::string& block = layers[l].block;
    std::size_t next = l + 1;
    while (!block.empty() && next < layers.size() && layers[next].block == block) ++next;
    const bool is_whole = !block.empty() && next <= end && is_all_of(block, layers, l, next);
    found.push_back(is_whole ? block + "*" : layers[l].name);
    l = is_whole ? next : l + 1;
  }
  return found;
}

}  // namespace

std::vector<WholeLayer> whole_layers(const ModelSpec& model, const std::vector<double>& cost_s) {
  std::vector<WholeLayer> layers;
  std::set<int> params;  // of the last one
  double most_s = 0;
  for (std::size_t l = 0; l < model.layers.size(); ++l) {
    const LayerSpec& layer = model.layers[l];
    const std::string name = whole_name(layer);
    if (layers.empty() || layers.back().name != name) {
      layers.push_back({name, layer.kind, block_of(name), layer.pieces});
      params.clear();
      most_s = cost_s[l];
    }
    WholeLayer& whole = layers.back();
    if (cost_s[l] > most_s) whole.kind = layer.kind;
    most_s = std::max(most_s, cost_s[l]);
    whole.cost_s += cost_s[l];
    ++whole.num_layers;
    for (int p : layer.params) {
      if (!params.insert(p).second) continue;
      const ParamSpec& param = model.params[at(p)];
      whole.weights += param.tensor.bytes();
      if (!param.stored.name.empty()) whole.divided_weights += param.tensor.bytes();
    }
  }
  return layers;
}

/// Of a layer's weights on each of its tracks.
static Bytes bytes_on_track(const WholeLayer& layer, const Grid& grid) {
  const int parts = layer.pieces > 1 ? grid.pieces : 1;
  return layer.weights - layer.divided_weights + layer.divided_weights / static_cast<Bytes>(parts);
}

std::vector<int> sets_of(const Draft& draft, const std::vector<WholeLayer>& layers) {
  struct Filled {
    int set = 0;
    Bytes bytes = 0;
  };
  std::vector<int> sets;
  std::map<int, Filled> tracks;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const Grid& grid = draft.grids[l];
    const Bytes bytes = bytes_on_track(layers[l], grid);
    int set = 0;  // the first in which all tracks have room
    for (int track : grid.tracks) {
      const auto& [number, filled] = tracks[track];
      const bool is_full = draft.set_bytes > 0 && filled > 0 && filled + bytes > draft.set_bytes;
      set = std::max(set, number + (is_full ? 1 : 0));
    }
    for (int track : grid.tracks) {
      if (tracks[track].set < set) tracks[track] = {set, 0};
      tracks[track].bytes += bytes;
    }
    sets.push_back(set);
  }
  return sets;
}

/// All but `place`.
static StrategyConfig order_of(const Draft& draft) {
  return {.first = draft.first,
          .chunk = draft.chunk,
          .window = draft.window,
          .graphs = draft.graphs,
          .stage_weights = draft.stage_bytes};
}

StrategyConfig to_config(const Draft& draft, const std::vector<WholeLayer>& layers) {
  StrategyConfig config = order_of(draft);
  const std::vector<int> sets = sets_of(draft, layers);
  for (std::size_t begin = 0, end = 0; begin < layers.size(); begin = end) {
    const Grid& grid = draft.grids[begin];
    const auto is_like = [&](std::size_t l) {
      return draft.grids[l] == grid && sets[l] == sets[begin];
    };
    while (end < layers.size() && is_like(end)) ++end;
    config.place.push_back({patterns(layers, begin, end), grid.tracks, grid.pieces, sets[begin]});
  }
  for (const WholeLayer& layer : layers) config.num_layers += layer.num_layers;
  return config;
}

/// By layer and track: the residency set, numbered in the order of the track.
static std::vector<std::map<int, int>> sets_by_track(const Draft& draft,
                                                     const std::vector<int>& sets) {
  std::vector<std::map<int, int>> numbers;
  std::map<int, std::map<int, int>> known;  // by track and set
  for (std::size_t l = 0; l < sets.size(); ++l) {
    numbers.emplace_back();
    for (int track : draft.grids[l].tracks) {
      auto& of_track = known[track];
      numbers.back()[track] =
          of_track.try_emplace(sets[l], static_cast<int>(of_track.size())).first->second;
    }
  }
  return numbers;
}

/// By layer of the model.
static std::vector<std::vector<Cell>> cells_of(const Strategy& strategy) {
  std::vector<std::vector<Cell>> cells;
  for (const Stage& stage : strategy.stages)
    cells.insert(cells.end(), at(stage.layers.end - stage.layers.begin), stage.cells);
  return cells;
}

std::optional<Draft> to_draft(const StrategyConfig& config, const std::vector<WholeLayer>& layers,
                              const ModelSpec& model, int groups) {
  static const LayerPlacement kElsewhere;  // track 0
  Draft draft{.first = config.first,
              .chunk = config.chunk,
              .window = config.window,
              .graphs = config.graphs,
              .stage_bytes = config.stage_weights};
  std::vector<int> sets;
  std::map<std::pair<int, int>, std::vector<Bytes>> filled;  // by track and set
  const auto by_layer = placements_of(config, model, groups);
  for (std::size_t l = 0, next = 0; l < layers.size(); ++l) {
    const LayerPlacement& first = by_layer[next] ? *by_layer[next] : kElsewhere;
    for (const std::size_t end = next + at(layers[l].num_layers); next < end; ++next) {
      const LayerPlacement& other = by_layer[next] ? *by_layer[next] : kElsewhere;
      if (std::tie(first.tracks, first.pieces, first.set) !=
          std::tie(other.tracks, other.pieces, other.set))
        return std::nullopt;
    }
    draft.grids.push_back(grid_for(layers[l], {first.tracks, first.pieces}, groups));
    sets.push_back(first.set);
    for (int track : first.tracks)
      filled[{track, first.set}].push_back(bytes_on_track(layers[l], draft.grids.back()));
  }
  const bool has_one_set =
      sets_by_track(draft, sets) == sets_by_track(draft, std::vector<int>(sets.size()));
  if (!has_one_set) {
    draft.set_bytes = 1;
    for (const auto& bytes : filled | std::views::values) {
      // A layer by itself may be larger than the limit.
      const bool is_limited = bytes.size() > 1;
      if (is_limited)
        draft.set_bytes =
            std::max(draft.set_bytes, std::accumulate(bytes.begin(), bytes.end(), Bytes{0}));
    }
  }
  const bool is_same = sets_by_track(draft, sets_of(draft, layers)) == sets_by_track(draft, sets) &&
                       cells_of(to_strategy(draft, layers, model, groups)) ==
                           cells_of(placed(config, by_layer, model, groups));
  return is_same ? std::optional(draft) : std::nullopt;
}

Strategy to_strategy(const Draft& draft, const std::vector<WholeLayer>& layers,
                     const ModelSpec& model, int groups) {
  std::vector<LayerPlacement> placements;
  placements.reserve(layers.size());
  std::vector<const LayerPlacement*> by_layer;
  const std::vector<int> sets = sets_of(draft, layers);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const Grid& grid = draft.grids[l];
    placements.push_back({.tracks = grid.tracks, .pieces = grid.pieces, .set = sets[l]});
    by_layer.insert(by_layer.end(), at(layers[l].num_layers), &placements.back());
  }
  return placed(order_of(draft), by_layer, model, groups);
}

Grid grid_for(const WholeLayer& layer, const Grid& grid, int groups) {
  const bool is_divided = layer.pieces > 1 || static_cast<int>(grid.tracks.size()) > groups;
  return is_divided ? grid : Grid{.tracks = grid.tracks};
}

Draft everywhere(const Grid& grid, const std::vector<WholeLayer>& layers, int groups) {
  Draft draft;
  for (const WholeLayer& layer : layers) draft.grids.push_back(grid_for(layer, grid, groups));
  return draft;
}

Grid consecutive(int begin, int tracks, int pieces) {
  Grid grid{std::vector<int>(at(tracks)), pieces};
  std::iota(grid.tracks.begin(), grid.tracks.end(), begin);
  return grid;
}

}  // namespace spillway
