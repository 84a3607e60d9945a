#pragma once

#include <functional>
#include <optional>

#include "scheduler/search/draft.h"
#include "scheduler/search/static_step.h"
#include "spillway/strategy_search.h"

namespace spillway {

/// What a search may draw.
struct SearchSpace {
  const ModelSpec& model;
  std::vector<WholeLayer> layers;
  int devices = 1;
  int groups = 1;         ///< reduction groups
  int virtual_nodes = 1;  ///< of a step
  Bytes budget = 0;       ///< of the smallest device that can run any unit
  /// A strategy to start from as well; it is listed as "train.strategy".
  std::optional<StrategyConfig> given = std::nullopt;
};

/// The cost of a strategy; nothing if it does not fit. A function of the strategy alone. Threads
/// may call it at the same time.
using PriceStrategy = std::function<std::optional<StepCost>(const StrategyConfig&)>;

/// See StepEstimator::estimate(). Threads may call it at the same time.
using EstimateStrategy =
    std::function<std::optional<StepEstimate>(const Strategy& strategy, double most_s)>;

/// The threads of a search. It finds the same with any number of them.
struct SearchThreads {
  int number = 1;  ///< at least 1
  /// Calls `work(0)` to `work(size - 1)` and returns when all have returned; throws what they
  /// throw. May be null if there is one thread.
  std::function<void(int size, const std::function<void(int)>& work)> for_each = {};
};

/// Searches for the strategy with the shortest step: simulated annealing from the best of the known
/// strategies, then descent, which tries changes of one group of layers until none helps. A move
/// gives the layers of a group the same new grid; groups are a layer, all of a kind, a block, and
/// a range of blocks. The result is a function of the space, the prices and `config`.
/// Source: Jia et al., "Beyond Data and Model Parallelism for Deep Neural Networks", 2019, section
/// 6, which changes one operation at a time; here changes of the cost are relative.
///
/// `estimate`: quicker than `price` and close to it; where it gives nothing, so does `price`. The
/// search goes by it, or by the longer of both times for a strategy that has no room for
/// everything, and lets `price` choose among the best. It passes the longest time that it would
/// accept, so an estimate may end early. That changes no decision. Null: `price` alone.
SearchResult search_strategy(const SearchSpace& space, const PriceStrategy& price,
                             const SearchConfig& config, const EstimateStrategy& estimate = {},
                             const SearchThreads& threads = {});

}  // namespace spillway
