#include "scheduler/plan/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

bool matches(const std::string& pattern, const LayerSpec& layer) {
  return fnmatch(pattern.c_str(), layer.name.c_str(), 0) == 0 ||
         fnmatch(pattern.c_str(), whole_name(layer).c_str(), 0) == 0;
}

/// Where one layer is.
struct Place {
  std::vector<Cell> cells;
  int set = 0;
  bool operator==(const Place&) const = default;
};

int num_rows(const LayerPlacement& placement) {
  return static_cast<int>(placement.tracks.size()) / placement.pieces;
}

/// The part of its row on which a piece is; nothing for a layer that is not divided.
std::optional<int> column_of(const LayerPlacement& placement, const LayerSpec& layer) {
  if (layer.pieces == 1) return std::nullopt;
  return layer.piece * placement.pieces / layer.pieces;
}

/// A layer that is not divided, such as one that adds what pieces make, is divided by the batch
/// over all tracks of a row.
Place place_of(const LayerPlacement& placement, std::optional<int> column, int groups) {
  Place place{{}, placement.set};
  int begin = 0, row = 0;
  const auto add = [&](int size, int on) {
    const int track = placement.tracks[at(row * placement.pieces + on)];
    place.cells.push_back({{begin, begin + size}, track});
    begin += size;
  };
  for (int size : split_groups(groups, num_rows(placement))) {
    if (column) {
      add(size, *column);
    } else {
      int next = 0;
      for (int part : split_groups(size, std::min(size, placement.pieces))) add(part, next++);
    }
    ++row;
  }
  return place;
}

/// The places of layers. Consecutive layers in the same place share an entry.
class Places {
 public:
  /// Null: a layer is on track 0.
  Places(const std::vector<const LayerPlacement*>& placements, const ModelSpec& model, int groups) {
    const LayerPlacement first_track;
    std::pair<const LayerPlacement*, std::optional<int>> last;
    for (std::size_t l = 0; l < placements.size(); ++l) {
      const auto* placement = placements[l] == nullptr ? &first_track : placements[l];
      const std::pair next(placement, column_of(*placement, model.layers[l]));
      if (next != last) add(place_of(*placement, next.second, groups));
      last = next;
      numbers_.push_back(places_.size() - 1);
    }
  }

  const Place& of(std::size_t layer) const { return places_[numbers_[layer]]; }
  bool is_with_the_one_before(std::size_t layer) const {
    return layer > 0 && numbers_[layer] == numbers_[layer - 1];
  }
  bool have_same_cells(std::size_t one, std::size_t other) const {
    return numbers_[one] == numbers_[other] || of(one).cells == of(other).cells;
  }

 private:
  void add(Place place) {
    if (places_.empty() || places_.back() != place) places_.push_back(std::move(place));
  }

  std::vector<Place> places_;
  std::vector<std::size_t> numbers_;  // by layer
};

void require_number_of_layers(const ModelSpec& model, int number) {
  if (number == 0 || at(number) == model.layers.size()) return;
  throw ConfigError("train.strategy.num_layers", 0,
                    fmt::format("is {}, but the model has {} layers and pieces: the strategy is "
                                "for another model; search again (spillway plan --search)",
                                number, model.layers.size()));
}

void require_layers(const ModelSpec& model, const std::string& pattern, std::size_t number) {
  const auto is_match = [&](const LayerSpec& layer) { return matches(pattern, layer); };
  if (std::ranges::any_of(model.layers, is_match)) return;
  std::vector<std::string> names;
  for (const LayerSpec& layer : model.layers) {
    if (names.empty() || names.back() != whole_name(layer)) names.push_back(whole_name(layer));
  }
  const std::size_t shown = std::min<std::size_t>(names.size(), 8);
  throw ConfigError(fmt::format("train.strategy.place[{}].layers", number), 0,
                    fmt::format("is {}, which matches no layer of the model; its layers are {}{}",
                                pattern, fmt::join(std::span(names).first(shown), ", "),
                                shown < names.size() ? ", ..." : ""));
}

/// By layer: whether a stage ends behind it. Another track reads what it makes, and the next layer
/// does too, or is not a further piece of the same layer.
std::vector<bool> stage_ends(const ModelSpec& model, const Places& places) {
  std::vector<bool> ends(model.layers.size());
  for (std::size_t reader = 0; reader < ends.size(); ++reader) {
    for (int e : model.layers[reader].inputs) {
      const EdgeSpec& edge = model.edges[at(e)];
      if (edge.producer < 0) continue;
      const std::size_t maker = at(edge.producer + edge.makers - 1);
      const LayerSpec& spec = model.layers[maker];
      const bool is_last_piece = spec.piece + 1 == spec.pieces;
      const bool is_read_next = std::ranges::count(model.layers[maker + 1].inputs, e) > 0;
      if ((is_last_piece || is_read_next) && !places.have_same_cells(reader, maker))
        ends[maker] = true;
    }
  }
  return ends;
}

Bytes weights_of(const ModelSpec& model, const LayerSpec& layer) {
  Bytes bytes = 0;
  for (int p : layer.params) bytes += model.params[at(p)].tensor.bytes();
  return bytes;
}

}  // namespace

std::string whole_name(const LayerSpec& layer) {
  return layer.pieces == 1 ? layer.name : layer.name.substr(0, layer.name.rfind('/'));
}

std::vector<const LayerPlacement*> placements_of(const StrategyConfig& config,
                                                 const ModelSpec& model, int groups) {
  config.validate();
  require_number_of_layers(model, config.num_layers);
  std::vector<const LayerPlacement*> by_layer(model.layers.size());
  for (std::size_t i = 0; i < config.place.size(); ++i) {
    const LayerPlacement& placement = config.place[i];
    if (num_rows(placement) > groups) {
      throw ConfigError(fmt::format("train.strategy.place[{}].tracks", i), 0,
                        fmt::format("divides the batch by {}, but train.reduction_groups is {}; "
                                    "use fewer tracks",
                                    num_rows(placement), groups));
    }
    for (const std::string& pattern : placement.layers) {
      require_layers(model, pattern, i);
      for (std::size_t l = 0; l < by_layer.size(); ++l) {
        if (matches(pattern, model.layers[l])) by_layer[l] = &placement;
      }
    }
  }
  return by_layer;
}

Strategy placed(const StrategyConfig& config, const ModelSpec& model, int groups) {
  Strategy strategy = placed(config, placements_of(config, model, groups), model, groups);
  strategy.tracks = config.num_tracks();
  return strategy;
}

Strategy placed(const StrategyConfig& config, const std::vector<const LayerPlacement*>& by_layer,
                const ModelSpec& model, int groups) {
  int tracks = 1;
  for (const LayerPlacement* placement : by_layer) {
    if (placement != nullptr) {
      tracks = std::max(tracks, 1 + *std::ranges::max_element(placement->tracks));
    }
  }
  Strategy strategy{.tracks = tracks,
                    .chunk = config.chunk,
                    .window = config.window,
                    .first = config.first,
                    .graphs = config.graphs};
  const Places places(by_layer, model, groups);
  const std::vector<bool> ends = stage_ends(model, places);
  Bytes stage_weights = 0;
  for (std::size_t l = 0; l < by_layer.size(); ++l) {
    const int layer = static_cast<int>(l);
    const Bytes weights = weights_of(model, model.layers[l]);
    const bool is_full = config.stage_weights > 0 && stage_weights > 0 && weights > 0 &&
                         stage_weights + weights > config.stage_weights;
    if (!places.is_with_the_one_before(l) || ends[l - 1] || is_full) {
      strategy.stages.push_back({{layer, layer}, places.of(l).cells, places.of(l).set});
      stage_weights = 0;
    }
    strategy.stages.back().layers.end = layer + 1;
    stage_weights += weights;
  }
  return strategy;
}

Bytes smallest_budget(const NeedTable& needs) {
  Bytes most = 0;
  for (int l = 0; l < static_cast<int>(needs.model.layers.size()); ++l) {
    most = std::max(most, range_need(needs, {l, l + 1}).largest().total(needs.split));
  }
  return round_up(most, kPage);
}

/// Each stage is as long as fits.
void divide_to_fit(Strategy& strategy, const NeedTable& needs, Bytes budget) {
  std::vector<Stage> stages;
  for (const Stage& whole : strategy.stages) {
    Stage stage = whole;
    for (int begin = whole.layers.begin; begin < whole.layers.end; begin = stage.layers.end) {
      RangeNeed need(needs, begin);
      stage.layers = {begin, begin + 1};
      need.grow();
      while (stage.layers.end < whole.layers.end) {
        need.grow();
        if (need.largest().total(needs.split) > budget) break;
        ++stage.layers.end;
      }
      stages.push_back(stage);
    }
  }
  strategy.stages = std::move(stages);
}

/// Whether other pieces of the layer with which a stage begins are in another stage.
static bool has_part_of_layer(const LayerRange& stage, const ModelSpec& model) {
  const auto is_divided = [&](int layer) {
    return layer >= 0 && layer < std::ssize(model.layers) && model.layers[at(layer)].pieces > 1;
  };
  const auto are_pieces = [&](int one, int other) {
    return is_divided(one) && is_divided(other) &&
           whole_name(model.layers[at(one)]) == whole_name(model.layers[at(other)]);
  };
  return are_pieces(stage.begin, stage.begin - 1) || are_pieces(stage.begin, stage.end);
}

/// Whether the pieces of a stage are parts of weights; else they are rows.
static bool has_parts_of_weights(const LayerRange& stage, const ModelSpec& model) {
  const auto is_part = [&](int param) { return !model.params[at(param)].stored.name.empty(); };
  const auto layers = model.layers.begin();
  return std::any_of(layers + stage.begin, layers + stage.end, [&](const LayerSpec& layer) {
    return layer.pieces > 1 && std::ranges::any_of(layer.params, is_part);
  });
}

std::vector<std::string> letters_of(const Strategy& strategy, std::size_t stage,
                                    const ModelSpec& model) {
  const Stage& placed = strategy.stages[stage];
  std::string letter = placed.cells.size() > 1 ? "S" : "";
  if (has_part_of_layer(placed.layers, model))
    letter += has_parts_of_weights(placed.layers, model) ? "P" : "A";
  std::vector<std::string> letters(at(strategy.tracks));
  for (const Cell& cell : placed.cells) letters[at(cell.track)] = letter.empty() ? "O" : letter;
  return letters;
}

}  // namespace spillway
