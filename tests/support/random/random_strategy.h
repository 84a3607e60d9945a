#pragma once

#include <algorithm>

#include "spillway/ids.h"
#include "spillway/spec.h"
#include "spillway/strategy_config.h"
#include "tests/support/random/random_contract.h"

namespace spillway::testing {

/// Any placement of the layers of a model on up to `most_tracks` tracks.
inline StrategyConfig random_strategy(Draw& draw, const ModelSpec& model, int groups,
                                      int most_tracks) {
  StrategyConfig strategy;
  const int tracks = draw.between(1, most_tracks);
  const int num_layers = static_cast<int>(model.layers.size());
  for (int begin = 0; begin < num_layers;) {
    const int end = std::min(begin + draw.between(1, num_layers), num_layers);
    LayerPlacement& placement = strategy.place.emplace_back();
    for (; begin < end; ++begin) placement.layers.push_back(model.layers[at(begin)].name);
    placement.pieces = draw.between(1, 3);
    placement.tracks.clear();
    for (int i = placement.pieces * draw.between(1, std::min(groups, 3)); i > 0; --i) {
      placement.tracks.push_back(draw.between(0, tracks - 1));
    }
    placement.set = draw.chance(75) ? 0 : 1;
  }
  strategy.first = draw.chance(50) ? FirstChoice::forward : FirstChoice::backward;
  strategy.chunk = draw.between(0, 3);
  strategy.window = draw.between(0, 3);
  if (draw.chance(25)) strategy.graphs = GraphChoice::recompute;
  if (draw.chance(50)) strategy.stage_weights = 1u << draw.between(8, 14);
  return strategy;
}

}  // namespace spillway::testing
