#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/xxh3.h"
#include "experiments/support/spread.h"
#include "scheduler/plan/placement.h"
#include "scheduler/search/strategy_search.h"
#include "scheduler/simulation/step_cost.h"
#include "tests/support/models/divided_model.h"
#include "tests/support/models/small_model.h"

/// The static simulation of a step beside the engine's: error, order and time. Then the time of a
/// proposal in searches.
namespace spillway::experiments {
namespace {

struct Case {
  int blocks, pieces, devices;
};

constexpr Case kCases[]{{6, 4, 4}, {12, 4, 8}, {24, 8, 8}, {24, 8, 16}};
constexpr Case kSearches[]{{24, 8, 4}, {24, 8, 8}, {24, 8, 16}, {24, 8, 32}, {24, 8, 64}};
constexpr double kLinks[]{10e6, 40e6, 160e6, 640e6};
constexpr int kNodes = 8;
constexpr double kForward = 2e-3;

/// Blocks of 3 + pieces layers; 1 MiB of weights and 2 ms of forward for each layer.
struct Problem {
  explicit Problem(const Case& what, int virtual_nodes = kNodes)
      : model(testing::divided_chain(what.blocks, what.pieces, 1 << 18)),
        profile(testing::profile_of(model, kForward)),
        shape{.virtual_nodes = virtual_nodes,
              .groups = virtual_nodes,
              .lane_groups = {virtual_nodes},
              .max_steps = kPricedSteps},
        layers(whole_layers(model, std::vector<double>(model.layers.size(), 3 * kForward))) {
    engine.device_budgets.assign(at(what.devices), 4_GiB);
    engine.host_budget = 64_GiB;
    engine.policy = make_policy("fifo");
  }

  Strategy strategy(std::mt19937_64& words, int devices) const {
    Draft draft = everywhere({}, layers, shape.groups);
    for (std::size_t begin = 0; begin < layers.size();) {
      const std::size_t end = std::min(layers.size(), begin + 1 + words() % layers.size());
      const int tracks = 1 << words() % (1 + at(static_cast<int>(std::log2(devices))));
      const int pieces = words() % 2 == 0 && tracks <= kNodes ? 1 : std::min(tracks, 4);
      const int first = static_cast<int>(words() % at(devices - tracks + 1));
      for (; begin < end; ++begin) {
        draft.grids[begin] =
            grid_for(layers[begin], consecutive(first, tracks, pieces), shape.groups);
      }
    }
    draft.chunk = static_cast<int>(words() % 3);
    return placed(to_config(draft, layers), model, shape.groups);
  }

  ModelSpec model;
  Profile profile;
  JobShape shape;
  std::vector<WholeLayer> layers;
  EngineConfig engine;
};

/// The seconds of CPU time that `work` takes, and its result.
template <typename Work>
auto timed(const Work& work) {
  const std::clock_t begin = std::clock();
  auto result = work();
  return std::pair(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, std::move(result));
}

/// Kendall's rank correlation.
double tau(const std::vector<std::pair<double, double>>& both) {
  double sum = 0, pairs = 0;
  for (std::size_t i = 0; i < both.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j, ++pairs) {
      const double order = (both[i].first - both[j].first) * (both[i].second - both[j].second);
      sum += order > 0 ? 1 : order < 0 ? -1 : 0;
    }
  }
  return sum / pairs;
}

void print_case(const Case& what, int strategies) {
  const Problem problem(what);
  std::vector<double> errors, ops, engine_ms, static_ms, all_ms;
  std::vector<std::pair<double, double>> both;
  std::mt19937_64 words(1);
  for (int i = 0; i < strategies; ++i) {
    const Strategy strategy = problem.strategy(words, what.devices);
    const VirtualCosts costs{.copy_bytes_per_s = kLinks[words() % std::size(kLinks)]};
    auto [lower_s, plan] = timed([&] {
      auto lowered =
          std::make_shared<JobPlan>(lower(problem.model, problem.profile, problem.shape, strategy));
      for (int t = 0; t < strategy.tracks; ++t) lowered->track_devices.emplace_back(t);
      return lowered;
    });
    StepEstimator estimator(problem.model, problem.profile, problem.shape, problem.engine, costs);
    estimator.estimate(strategy);
    const auto [engine_s, cost] = timed([&] { return step_cost(plan, problem.engine, costs); });
    const auto [static_s, estimate] = timed([&] { return estimator.estimate(strategy); });
    if (!cost || !estimate) continue;
    both.emplace_back(estimate->step_s, cost->step_s);
    errors.push_back(std::abs(estimate->step_s / cost->step_s - 1));
    ops.push_back(static_cast<double>(plan->programs[kStepAfterStep.index()]->ops.size()));
    engine_ms.push_back(1e3 * engine_s);
    static_ms.push_back(1e3 * static_s);
    all_ms.push_back(1e3 * lower_s);
  }
  std::ranges::sort(errors);
  const auto median = [](const std::vector<double>& values) { return spread_of(values).median; };
  const auto percent = [](double error) { return fixed(100 * error, 2); };
  double sum = 0;
  for (double error : errors) sum += error;
  const double before = median(engine_ms) + median(all_ms);
  print_row(
      {std::to_string(what.blocks) + " blocks, " + std::to_string(what.pieces) + " pieces, " +
           std::to_string(what.devices) + " devices",
       std::to_string(errors.size()), fixed(median(ops), 0), fixed(median(all_ms), 2),
       fixed(median(engine_ms), 2), fixed(median(static_ms), 3),
       fixed(before / median(static_ms), 1), percent(sum / static_cast<double>(errors.size())),
       percent(errors[errors.size() * 99 / 100]), percent(errors.back()), fixed(tau(both), 4)});
  std::fflush(stdout);
}

/// The estimates of a search.
class Estimates {
 public:
  Estimates(const Problem& problem, const VirtualCosts& costs, bool ends_early)
      : problem_(problem),
        costs_(costs),
        estimator_(problem.model, problem.profile, problem.shape, problem.engine, costs),
        ends_early_(ends_early) {}

  std::optional<StepEstimate> of(const Strategy& strategy, double most_s) {
    const auto [seconds, estimate] = timed([&] {
      return ends_early_ ? estimator_.estimate(strategy, most_s) : estimator_.estimate(strategy);
    });
    estimate_s_ += seconds;
    note(strategy, most_s);
    return estimate;
  }

  SearchResult search(int proposals) {
    every_ = at(std::max(1, proposals / 100));
    const SearchSpace space{problem_.model,
                            problem_.layers,
                            static_cast<int>(problem_.engine.device_budgets.size()),
                            problem_.shape.groups,
                            problem_.shape.virtual_nodes,
                            problem_.engine.device_budgets.front()};
    const auto price = [&](const StrategyConfig& config) {
      const Strategy strategy = placed(config, problem_.model, problem_.shape.groups);
      auto plan = std::make_shared<JobPlan>(
          lower(problem_.model, problem_.profile, problem_.shape, strategy));
      for (int t = 0; t < strategy.tracks; ++t) plan->track_devices.emplace_back(t);
      return step_cost(plan, problem_.engine, costs_);
    };
    return search_strategy(
        space, price, {.proposals = proposals},
        [&](const Strategy& strategy, double most_s) { return of(strategy, most_s); });
  }

  double ms_a_proposal() const { return 1e3 * estimate_s_ / static_cast<double>(seen_.size()); }
  /// By strategy, in the order in which they were first proposed: the time that was asked for. It
  /// follows from all decisions before.
  const std::vector<std::pair<std::string, double>>& asked() const { return asked_; }
  const std::vector<Strategy>& some() const { return some_; }

 private:
  void note(const Strategy& strategy, double most_s) {
    Xxh3 content;
    const auto add = [&](auto value) { content.add(&value, sizeof value); };
    for (const Stage& stage : strategy.stages) {
      add(stage.layers);
      add(stage.set);
      for (const Cell& cell : stage.cells) add(cell);
    }
    add(strategy.chunk);
    add(strategy.window);
    add(strategy.first);
    add(strategy.graphs);
    if (!seen_.insert(content.hex()).second) return;
    asked_.emplace_back(content.hex(), most_s);
    if (seen_.size() % every_ == 0) some_.push_back(strategy);
  }

  const Problem& problem_;
  const VirtualCosts& costs_;
  StepEstimator estimator_;
  const bool ends_early_;
  double estimate_s_ = 0;
  std::set<std::string> seen_;
  std::vector<std::pair<std::string, double>> asked_;
  std::size_t every_ = 1;
  std::vector<Strategy> some_;
};

void print_search(const Case& what, int proposals) {
  const Problem problem(what, std::max(kNodes, what.devices));
  const VirtualCosts costs{.copy_bytes_per_s = 40e6};
  Estimates whole(problem, costs, /*ends_early=*/false), early(problem, costs, true);
  const SearchResult found = whole.search(proposals), same = early.search(proposals);
  std::size_t equal = 0;
  while (equal < std::min(whole.asked().size(), early.asked().size()) &&
         whole.asked()[equal] == early.asked()[equal]) {
    ++equal;
  }
  double lower_s = 0, anew_s = 0;
  for (const Strategy& strategy : whole.some()) {
    lower_s += timed([&] {
                 return lower_step(problem.model, problem.profile, problem.shape, strategy);
               }).first;
    StepEstimator fresh(problem.model, problem.profile, problem.shape, problem.engine, costs);
    anew_s += timed([&] { return fresh.estimate(strategy); }).first;
  }
  const auto number = static_cast<double>(whole.some().size());
  const double lower_ms = 1e3 * lower_s / number;
  const bool is_same = found.best.cost->step_s == same.best.cost->step_s;
  print_row({std::to_string(what.devices), std::to_string(whole.asked().size()),
             std::to_string(equal) + (is_same ? "" : ", another result"), fixed(lower_ms, 2),
             fixed(1e3 * anew_s / number, 3), fixed(whole.ms_a_proposal(), 3),
             fixed(early.ms_a_proposal(), 3),
             fixed((lower_ms + whole.ms_a_proposal()) / early.ms_a_proposal(), 1)});
  std::fflush(stdout);
}

}  // namespace
}  // namespace spillway::experiments

int main(int argc, char** argv) {
  using namespace spillway::experiments;
  const bool brief = argc > 1 && std::string_view(argv[1]) == "--brief";
  print_head({"model", "strategies", "ops a step", "lowering, ms", "engine, ms", "static, ms",
              "times faster", "mean error, %", "99th, %", "most, %", "Kendall's tau"});
  for (const auto& what : kCases) {
    print_case(what, brief ? 3 : 300);
    if (brief) break;
  }
  std::puts("");
  print_head({"devices", "proposals", "decided alike", "lowering a step, ms",
              "whole pass, nothing known, ms", "whole pass, ms", "pass that ends early, ms",
              "times faster"});
  for (const auto& what : kSearches) {
    const int proposals = what.devices == 16 ? 100'000 : 4'000;
    print_search(what, brief ? 50 : proposals);
    if (brief) break;
  }
  return 0;
}
