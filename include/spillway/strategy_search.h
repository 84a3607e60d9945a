#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spillway/strategy_config.h"
#include "spillway/units.h"

namespace spillway {

/// How to search for a strategy.
struct SearchConfig {
  int proposals = 4000;    ///< strategies that are tried, at least 1
  std::uint64_t seed = 1;  ///< of the draws
  int devices = 0;         ///< on this many of the trial's devices; 0: on all
};

/// The cost of a training step, simulated.
struct StepCost {
  double step_s = 0;          ///< seconds from one commit to the next
  Bytes to_device = 0;        ///< that are copied from the host in a step, to all devices
  Bytes to_host = 0;          ///< likewise to the host
  Bytes between_devices = 0;  ///< likewise from one device to another
};

/// A strategy and its cost.
struct PricedStrategy {
  std::string name;                        ///< "pipeline of 4"
  std::optional<StrategyConfig> strategy;  ///< nothing: none, but `data_parallel`
  int data_parallel = 1;                   ///< TrainConfig::data_parallel, if there is no strategy
  std::optional<StepCost> cost;            ///< nothing: it does not fit
};

/// What a search has found.
struct SearchResult {
  std::vector<PricedStrategy> known;  ///< data parallelism and well-known strategies, in this order
  PricedStrategy best;  ///< the fastest of all, named "found" if it is none of `known`
  int simulated = 0;    ///< different strategies that were simulated
};

}  // namespace spillway
