#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/plan/strategy.h"
#include "spillway/spec.h"
#include "spillway/strategy_config.h"
#include "spillway/units.h"

namespace spillway {

/// A layer with all its pieces, and the layer that joins them if there is one. A search places them
/// together, since patterns name them together.
struct WholeLayer {
  std::string name;
  std::string kind;   ///< of the costliest of its layers
  std::string block;  ///< "h.3.", or empty: it is in no block
  int pieces = 1;
  double cost_s = 0;          ///< forward and backward of one virtual node
  Bytes weights = 0;          ///< each once
  Bytes divided_weights = 0;  ///< of these, those of which each piece has a part
  int num_layers = 0;         ///< of the model
};

/// The layers of a model, in order. `cost_s`: by layer of the model.
std::vector<WholeLayer> whole_layers(const ModelSpec& model, const std::vector<double>& cost_s);

/// Tracks as in LayerPlacement.
struct Grid {
  std::vector<int> tracks{0};
  int pieces = 1;
  auto operator<=>(const Grid&) const = default;
};

/// A strategy under search: a grid for each whole layer.
struct Draft {
  std::vector<Grid> grids;
  FirstChoice first = FirstChoice::backward;
  int chunk = 0, window = 0;
  GraphChoice graphs = GraphChoice::keep;
  /// The layers of a track, in order, are grouped into residency sets with at most this many bytes
  /// of weights; 0: into one.
  Bytes set_bytes = 0;
  Bytes stage_bytes = 0;  ///< StrategyConfig::stage_weights
  auto operator<=>(const Draft&) const = default;
};

/// The residency set of each layer (LayerPlacement::set).
std::vector<int> sets_of(const Draft& draft, const std::vector<WholeLayer>& layers);

/// The draft as a configuration, with one placement for consecutive equal layers, and "h.3.*" for
/// the layers of a block.
StrategyConfig to_config(const Draft& draft, const std::vector<WholeLayer>& layers);

/// A configuration as a draft; nothing if it places parts of a layer in different ways, or
/// residency sets as no draft does. Throws ConfigError like placed().
std::optional<Draft> to_draft(const StrategyConfig& config, const std::vector<WholeLayer>& layers,
                              const ModelSpec& model, int groups);

/// The draft on the layers of a model; see placed().
Strategy to_strategy(const Draft& draft, const std::vector<WholeLayer>& layers,
                     const ModelSpec& model, int groups);

/// The grid as it is for a layer: one that is not divided has no use for ranges of pieces, unless
/// there are more tracks than reduction groups.
Grid grid_for(const WholeLayer& layer, const Grid& grid, int groups);
/// All layers on the same grid.
Draft everywhere(const Grid& grid, const std::vector<WholeLayer>& layers, int groups);
/// Consecutive tracks from `begin`: ranges of groups times `pieces` ranges of pieces.
Grid consecutive(int begin, int tracks, int pieces = 1);

}  // namespace spillway
