#include "scheduler/search/strategy_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/plan/placement.h"
#include "scheduler/search/moves.h"
#include "scheduler/search/starts.h"
#include "scheduler/search/static_step.h"
#include "scheduler/simulation/step_cost.h"
#include "tests/support/models/divided_model.h"
#include "tests/support/models/small_model.h"
#include "tests/support/random/from_environment.h"

/// Searches of strategies that the virtual clock prices.
namespace spillway {
namespace {

using testing::chain;
using testing::divided_chain;
using testing::kSanitized;
using testing::profile_of;

constexpr double kForward = 1e-3;

/// A model on equal devices.
struct Problem {
  Problem(ModelSpec spec, int num_devices, int virtual_nodes, double bytes_per_s,
          Bytes budget = 64_MiB)
      : model(std::move(spec)),
        profile(profile_of(model, kForward)),
        shape{.virtual_nodes = virtual_nodes,
              .groups = virtual_nodes,
              .lane_groups = {virtual_nodes},
              .max_steps = kPricedSteps},
        engine{.device_budgets = std::vector<Bytes>(at(num_devices), budget),
               .host_budget = 1_GiB,
               .policy = make_policy("fifo")},
        costs{.copy_bytes_per_s = bytes_per_s},
        space{model,
              whole_layers(model, std::vector<double>(model.layers.size(), 3 * kForward)),
              num_devices,
              virtual_nodes,
              virtual_nodes,
              budget} {}

  std::optional<Strategy> strategy_of(const StrategyConfig& config) const {
    Strategy strategy = placed(config, model, shape.groups);
    const NeedTable needs(model, profile, shape, strategy);
    if (smallest_budget(needs) > engine.device_budgets[0]) return std::nullopt;
    divide_to_fit(strategy, needs, engine.device_budgets[0]);
    return strategy;
  }

  std::optional<StepCost> price(const StrategyConfig& config) const {
    const auto strategy = strategy_of(config);
    if (!strategy) return std::nullopt;
    auto plan = std::make_shared<JobPlan>(lower(model, profile, shape, *strategy));
    for (int t = 0; t < strategy->tracks; ++t) plan->track_devices.emplace_back(t);
    return step_cost(plan, engine, costs);
  }

  /// `asks_for_all`: takes no heed of the time that is enough to know.
  EstimateStrategy estimate(bool asks_for_all = false) const {
    auto estimator = std::make_shared<StepEstimator>(model, profile, shape, engine, costs);
    return [=](const Strategy& strategy, double most_s) {
      return asks_for_all ? estimator->estimate(strategy) : estimator->estimate(strategy, most_s);
    };
  }

  SearchResult search(const SearchConfig& config) const {
    return search_strategy(
        space, [&](const StrategyConfig& strategy) { return price(strategy); }, config);
  }

  ModelSpec model;
  Profile profile;
  JobShape shape;
  EngineConfig engine;
  VirtualCosts costs;
  SearchSpace space;
};

double step_of(const SearchResult& result, const std::string& name) {
  for (const PricedStrategy& known : result.known) {
    if (known.name == name) return known.cost->step_s;
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(StrategySearch, NamesKnownStrategies) {
  const Problem problem(divided_chain(2, 4), 4, 4, 1e9);
  std::vector<std::string> names;
  for (const auto& [name, draft] : known_drafts(problem.space.layers, 4, 4)) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"one device, as a strategy",
                                             "data parallelism, as a strategy",
                                             "pipeline of 2, each on 2 devices", "pipeline of 4",
                                             "tensor parallelism", "pieces or batch"}));
}

TEST(StrategySearch, DividesLayersWithManyWeightsByPieces) {
  std::vector<WholeLayer> layers{{.name = "conv", .pieces = 4, .cost_s = 9, .weights = 1_MiB},
                                 {.name = "pool", .cost_s = 1},
                                 {.name = "linear", .pieces = 4, .cost_s = 1, .weights = 9_MiB}};
  const auto [name, expert] = known_drafts(layers, 4, 4).back();
  EXPECT_EQ(name, "pieces or batch");
  EXPECT_EQ(expert.grids,
            (std::vector{consecutive(0, 4), consecutive(0, 4), consecutive(0, 4, /*pieces=*/4)}));
}

TEST(StrategySearch, WritesPatternsOfBlocks) {
  const Problem problem(divided_chain(3, 2), 2, 4, 1e9);
  Draft draft = everywhere(consecutive(0, 2), problem.space.layers, problem.space.groups);
  EXPECT_EQ(to_config(draft, problem.space.layers).place.at(0).layers,
            std::vector<std::string>{"*"});
  for (std::size_t l = 4; l < 10; ++l) draft.grids[l] = consecutive(1, 1);  // from h.1.mlp on
  const StrategyConfig config = to_config(draft, problem.space.layers);
  ASSERT_EQ(config.place.size(), 2u);
  EXPECT_EQ(config.place[0].layers, (std::vector<std::string>{"h.0.*", "h.1.norm"}));
  EXPECT_EQ(config.place[1].layers,
            (std::vector<std::string>{"h.1.mlp", "h.1.add", "h.2.*", "loss"}));
  const Strategy strategy = placed(config, problem.model, 4);
  EXPECT_EQ(strategy.stages.front().cells.size(), 2u);
  EXPECT_EQ(strategy.stages.back().cells, (std::vector<Cell>{{{0, 4}, 1}}));
}

TEST(StrategySearch, DividesWeightsIntoSetsOfLimitedBytes) {
  const Problem problem(chain(6, 256 << 10), 2, 4, 1e9);  // 1 MiB a layer
  Draft draft = everywhere(consecutive(0, 1), problem.space.layers, problem.space.groups);
  EXPECT_EQ(sets_of(draft, problem.space.layers), std::vector<int>(6, 0));
  draft.set_bytes = 2_MiB;
  EXPECT_EQ(sets_of(draft, problem.space.layers), (std::vector{0, 0, 1, 1, 2, 2}));
  draft.set_bytes = 1;
  EXPECT_EQ(sets_of(draft, problem.space.layers), (std::vector{0, 1, 2, 3, 4, 5}));
  draft.set_bytes = 2_MiB;
  draft.grids[1] = consecutive(1, 1);
  EXPECT_EQ(sets_of(draft, problem.space.layers), (std::vector{0, 0, 0, 1, 1, 2}));
  const StrategyConfig config = to_config(draft, problem.space.layers);
  const Strategy written = placed(config, problem.model, 4);
  const Strategy direct = to_strategy(draft, problem.space.layers, problem.model, 4);
  ASSERT_EQ(written.stages.size(), direct.stages.size());
  for (std::size_t s = 0; s < written.stages.size(); ++s) {
    EXPECT_EQ(written.stages[s].layers, direct.stages[s].layers);
    EXPECT_EQ(written.stages[s].cells, direct.stages[s].cells);
    EXPECT_EQ(written.stages[s].set, direct.stages[s].set);
  }
}

TEST(StrategySearch, ReadsConfigurationsBackAsDrafts) {
  const Problem problem(divided_chain(3, 2, 64 << 10), 2, 4, 1e9);
  const std::vector<WholeLayer>& layers = problem.space.layers;
  const auto read = [&](const StrategyConfig& config) {
    return to_draft(config, layers, problem.model, problem.space.groups);
  };
  Draft draft = everywhere(consecutive(0, 2), layers, problem.space.groups);
  draft.first = FirstChoice::forward;
  draft.chunk = 2;
  draft.stage_bytes = 300_KiB;
  EXPECT_EQ(read(to_config(draft, layers)), draft);
  for (std::size_t l = 3; l < layers.size(); ++l) draft.grids[l] = consecutive(1, 1);
  draft.grids[1] = consecutive(0, 2, /*pieces=*/2);
  draft.set_bytes = 400_KiB;
  const Draft again = read(to_config(draft, layers)).value();
  EXPECT_EQ(again.grids, draft.grids);
  EXPECT_EQ(sets_of(again, layers), sets_of(draft, layers));
  StrategyConfig config = to_config(draft, layers);
  config.place.push_back({{"h.0.mlp/1"}, {1}});
  EXPECT_FALSE(read(config)) << "one piece by itself";
  config = to_config(draft, layers);
  for (LayerPlacement& placement : config.place) placement.set *= 3;
  EXPECT_EQ(read(config), again) << "numbers of sets do not matter";
}

/// A name may begin with the block of another layer.
TEST(StrategySearch, WritesPatternsThatMatchNothingElse) {
  ModelSpec model = chain(5);
  const char* const names[] = {"m.layers.0.attn_input", "m.layers.0.attn", "m.layers.1",
                               "m.layers.1.mlp.up", "head"};
  for (std::size_t l = 0; l < 5; ++l) model.layers[l].name = names[l];
  const Problem problem(model, 2, 4, 1e9);
  for (std::size_t first = 1; first < 5; ++first) {
    Draft draft = everywhere(consecutive(0, 1), problem.space.layers, problem.space.groups);
    for (std::size_t l = first; l < 5; ++l) draft.grids[l] = consecutive(1, 1);
    const StrategyConfig config = to_config(draft, problem.space.layers);
    EXPECT_EQ(to_draft(config, problem.space.layers, problem.model, 4), draft) << first;
  }
}

TEST(StrategySearch, StartsFromAGivenStrategy) {
  Problem problem(chain(6, 400'000), 4, 8, 1e8);
  const SearchResult found = problem.search({.proposals = 300});
  const SearchResult without = problem.search({.proposals = 2});
  ASSERT_LT(found.best.cost->step_s, without.best.cost->step_s);
  problem.space.given = found.best.strategy;
  const SearchResult with = problem.search({.proposals = 2});
  EXPECT_LE(with.best.cost->step_s, found.best.cost->step_s);
  EXPECT_EQ(step_of(with, "train.strategy"), found.best.cost->step_s);
}

/// Of 12 MiB of weights 10 MiB have room, without gradients. Where everything has room, weights do
/// not displace each other.
TEST(StrategySearch, ChoosesWhatStaysWhereMemoryIsShort) {
  const auto found = [](Bytes budget) {
    const Problem problem(chain(12, 256 << 10), 2, 8, 3e8, budget);
    const auto price = [&](const StrategyConfig& strategy) { return problem.price(strategy); };
    return search_strategy(problem.space, price, {.proposals = 300}, problem.estimate());
  };
  const auto has_sets = [](const SearchResult& result) {
    return std::ranges::any_of(result.best.strategy.value().place,
                               [](const LayerPlacement& each) { return each.set > 0; });
  };
  const SearchResult tight = found(10_MiB);
  EXPECT_TRUE(has_sets(tight));
  for (const PricedStrategy& known : tight.known) {
    EXPECT_LT(1.15 * tight.best.cost.value().step_s, known.cost.value().step_s) << known.name;
  }
  EXPECT_FALSE(has_sets(found(64_MiB)));
}

/// Layers with many weights behind slow links: each should be on one device.
TEST(StrategySearch, BeatsDataParallelismWhereWeightsAreLarge) {
  const Problem problem(chain(8, 400'000), 4, 8, 1e8);
  const SearchResult result = problem.search({.proposals = 300});
  ASSERT_TRUE(result.best.cost);
  EXPECT_LT(1.3 * result.best.cost->step_s, step_of(result, "data parallelism, as a strategy"));
  EXPECT_LE(result.best.cost->step_s, step_of(result, "pipeline of 4"));
  EXPECT_EQ(problem.price(*result.best.strategy)->step_s, result.best.cost->step_s);
}

TEST(StrategySearch, IsAFunctionOfItsSeed) {
  const Problem problem(divided_chain(2, 2, 50'000), 2, 4, 1e8);
  const auto tried = [&](std::uint64_t seed) {
    std::vector<double> prices;
    search_strategy(problem.space,
                    [&](const StrategyConfig& strategy) {
                      const auto cost = problem.price(strategy);
                      prices.push_back(cost ? cost->step_s : 0);
                      return cost;
                    },
                    {.proposals = 60, .seed = seed});
    return prices;
  };
  EXPECT_EQ(tried(1), tried(1));
  EXPECT_NE(tried(1), tried(2));
}

/// The shortest step of all strategies whose layers are each on a grid of consecutive tracks.
double shortest_step(const Problem& problem, const std::vector<Grid>& grids) {
  Draws draws(1);
  const Moves moves(problem.space, draws);
  double least = std::numeric_limits<double>::infinity();
  const std::size_t layers = problem.space.layers.size();
  std::vector<std::size_t> digits(layers, 0);
  while (true) {
    Draft draft = everywhere({}, problem.space.layers, problem.space.groups);
    for (std::size_t l = 0; l < layers; ++l) draft.grids[l] = grids[digits[l]];
    for (const int chunk : {0, 1, 2}) {
      draft.chunk = chunk;
      for (const Draft& next : moves.all_stages(draft)) {
        const auto cost = problem.price(to_config(next, problem.space.layers));
        if (cost) least = std::min(least, cost->step_s);
      }
    }
    std::size_t l = 0;
    while (l < layers && ++digits[l] == grids.size()) digits[l++] = 0;
    if (l == layers) return least;
  }
}

TEST(StrategySearch, FindsTheBestOfASmallSpace) {
  constexpr int kSeeds = kSanitized ? 3 : 10;
  ModelSpec model = chain(5, 100'000);
  model.params[2].tensor.dims[0].size = 400'000;
  const Problem problem(model, 2, 4, 1e8);
  const double least_s =
      shortest_step(problem, {consecutive(0, 1), consecutive(1, 1), consecutive(0, 2)});
  int found = 0;
  std::set<double> starts;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const SearchResult result = problem.search({.proposals = 2000, .seed = seed});
    found += result.best.cost->step_s <= least_s ? 1 : 0;
    for (const PricedStrategy& known : result.known) starts.insert(known.cost->step_s);
  }
  EXPECT_GE(found, kSeeds - 1);
  EXPECT_GT(*starts.begin(), least_s) << "the control: no start is the best";

  int by_estimates = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    int priced = 0;
    const SearchResult result = search_strategy(
        problem.space,
        [&](const StrategyConfig& strategy) { return ++priced, problem.price(strategy); },
        {.proposals = 2000, .seed = seed}, problem.estimate());
    by_estimates += result.best.cost->step_s <= least_s ? 1 : 0;
    EXPECT_LT(priced, result.simulated / 5);
  }
  EXPECT_GE(by_estimates, kSeeds - 1);
}

std::vector<std::vector<Cell>> cells_of(const Problem& problem, const SearchResult& result) {
  std::vector<std::vector<Cell>> cells;
  const Strategy strategy = placed(*result.best.strategy, problem.model, problem.shape.groups);
  for (const Stage& stage : strategy.stages) cells.push_back(stage.cells);
  return cells;
}

/// Whether all passes are whole or end early, in ample memory and in so little that the engine has
/// the last word for many.
TEST(StrategySearch, DecidesTheSameWhenPassesEndEarly) {
  // Few proposals: few prices of strategies without room for everything.
  const std::vector<std::pair<Bytes, int>> cases{{64_MiB, 300}, {3_MiB, 300}, {3_MiB, 20}};
  for (const auto& [budget, proposals] : cases) {
    const Problem problem(divided_chain(3, 2, 100'000), 4, 8, 1e8, budget);
    const auto found = [&](bool asks_for_all, std::uint64_t seed) {
      const auto price = [&](const StrategyConfig& strategy) { return problem.price(strategy); };
      return search_strategy(problem.space, price, {.proposals = proposals, .seed = seed},
                             problem.estimate(asks_for_all));
    };
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const SearchResult whole = found(true, seed), early = found(false, seed);
      EXPECT_EQ(whole.simulated, early.simulated);
      EXPECT_EQ(whole.best.cost->step_s, early.best.cost->step_s);
      EXPECT_EQ(cells_of(problem, whole), cells_of(problem, early));
    }
  }
}

/// Counts calls. Each thread has an estimator of its own.
class ThreadedEstimates {
 public:
  explicit ThreadedEstimates(const Problem& problem) : problem_(problem) {}

  std::optional<StepEstimate> operator()(const Strategy& strategy, double most_s) {
    ++calls_;
    return own()(strategy, most_s);
  }
  int calls() const { return calls_; }

 private:
  EstimateStrategy own() {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = estimators_.try_emplace(std::this_thread::get_id());
    if (is_new) place->second = problem_.estimate();
    return place->second;
  }

  const Problem& problem_;
  std::atomic<int> calls_ = 0;
  std::mutex mutex_;
  std::map<std::thread::id, EstimateStrategy> estimators_;
};

/// Strategies that are estimated in advance, and then not asked for, change nothing.
TEST(StrategySearch, FindsTheSameWithAnyNumberOfThreads) {
  using Case = std::pair<Bytes, std::uint64_t>;  // budget, seed
  for (const Case& each : {Case(64_MiB, 1), Case(64_MiB, 2), Case(3_MiB, 1)}) {
    const Problem problem(divided_chain(3, 2, 100'000), 4, 8, 1e8, each.first);
    const auto found = [&](ThreadedEstimates& estimates, int threads) {
      const auto for_each = [](int size, const std::function<void(int)>& work) {
        std::vector<std::jthread> workers;
        for (int i = 0; i < size; ++i) workers.emplace_back([&work, i] { work(i); });
      };
      const SearchResult result = search_strategy(
          problem.space, [&](const StrategyConfig& strategy) { return problem.price(strategy); },
          {.proposals = 300, .seed = each.second}, std::ref(estimates), {threads, for_each});
      const StrategyConfig& best = *result.best.strategy;
      return std::tuple(cells_of(problem, result), best.chunk, best.window, best.first, best.graphs,
                        result.best.cost->step_s, result.simulated);
    };
    ThreadedEstimates asked_for(problem);
    const auto alone = found(asked_for, 1);
    for (const int threads : {2, 5}) {
      ThreadedEstimates estimates(problem);
      EXPECT_EQ(found(estimates, threads), alone);
      EXPECT_GT(estimates.calls(), asked_for.calls()) << "the control: they estimate in advance";
    }
  }
}

TEST(StrategySearch, SaysThatNothingFits) {
  const Problem problem(chain(4), 2, 2, 1e9, kPage);
  const SearchResult result = problem.search({.proposals = 10});
  EXPECT_FALSE(result.best.cost);
  EXPECT_FALSE(result.known.empty());
}

}  // namespace
}  // namespace spillway
