#pragma once

#include "scheduler/plan/lower.h"
#include "scheduler/plan/need.h"

namespace spillway {

/// The name of the layer that was divided into pieces; of another layer, its own.
std::string whole_name(const LayerSpec& layer);

/// The placement of each layer; null: on track 0. Throws ConfigError like placed().
std::vector<const LayerPlacement*> placements_of(const StrategyConfig& config,
                                                 const ModelSpec& model, int groups);

/// Puts the layers of a model on tracks. Consecutive layers with the same tracks make a stage,
/// which ends behind a layer that other tracks read, so that they do not wait for more than they
/// need, and where it has `config.stage_weights`. Throws ConfigError (`train.strategy.place[...]`)
/// for patterns without a layer and for more ranges than there are groups.
Strategy placed(const StrategyConfig& config, const ModelSpec& model, int groups);
/// The same with a placement for each layer instead of `config.place`, as of placements_of().
Strategy placed(const StrategyConfig& config, const std::vector<const LayerPlacement*>& by_layer,
                const ModelSpec& model, int groups);

/// The smallest device budget, a multiple of kPage, for stages of one layer each.
Bytes smallest_budget(const NeedTable& needs);
/// Divides stages so that each fits a device of `budget` bytes, which is not below the smallest.
void divide_to_fit(Strategy& strategy, const NeedTable& needs, Bytes budget);

/// How a stage is divided over the tracks, by track: S, P, A, SP, SA, O, or empty
/// (TrialPlan::placement).
std::vector<std::string> letters_of(const Strategy& strategy, std::size_t stage,
                                    const ModelSpec& model);

}  // namespace spillway
