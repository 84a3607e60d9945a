#include <fmt/format.h>
#include <tbb/enumerable_thread_specific.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "scheduler/search/static_step.h"
#include "scheduler/search/strategy_search.h"
#include "scheduler/simulation/step_cost.h"
#include "spillway/error.h"
#include "trainer/session/session_impl.h"

/// Steps of one trial, simulated: searches of strategies, and predictions of speed.
namespace spillway {
namespace {

/// The trial with the steps that are priced, without evaluations, on one device.
TrialConfig priced_trial(TrialConfig config) {
  TrainConfig& train = config.train;
  train.strategy.reset();
  train.lane_groups.clear();
  train.data_parallel = 1;
  train.max_steps = kPricedSteps;
  train.eval_steps = 0;
  config.data = std::make_shared<DataSplit>(
      DataSplit{.train = config.data->train, .eval = nullptr, .augment = config.data->augment});
  return config;
}

/// The smallest budget of a device that can run the trial.
Bytes smallest_usable(const SessionTrial& trial, const std::vector<Bytes>& budgets) {
  Bytes smallest = std::numeric_limits<Bytes>::max();
  for (Bytes budget : budgets) {
    if (budget >= trial.planned.summary.smallest_budget_bytes)
      smallest = std::min(smallest, budget);
  }
  return smallest;
}

/// `budgets`: of all devices, of which the search has the first `devices`.
SearchSpace space_of(const SessionTrial& trial, const std::vector<Bytes>& budgets, int devices) {
  const StrategyConfig* given = trial.config.train.strategy_on(devices);
  std::vector<double> cost_s;
  for (const LayerProfile& layer : trial.profile.layers) {
    cost_s.push_back(layer.forward_s + layer.backward_s);
  }
  return {.model = trial.model->spec,
          .layers = whole_layers(trial.model->spec, cost_s),
          .devices = devices,
          .groups = trial.config.train.reduction_groups,
          .virtual_nodes = trial.config.train.virtual_nodes,
          .budget = smallest_usable(trial, budgets),
          .given = given && given->num_tracks() <= devices ? std::optional(*given) : std::nullopt};
}

/// Without a strategy, on 1, 2, 4, ... and all devices.
std::vector<PricedStrategy> lanes_on(int devices, int groups) {
  std::vector<PricedStrategy> found;
  for (int lanes = 1; lanes < std::min(devices, groups); lanes *= 2) {
    found.push_back({.name = fmt::format("data_parallel: {}", lanes), .data_parallel = lanes});
  }
  const int most = std::min(devices, groups);
  found.push_back({.name = fmt::format("data_parallel: {}", most), .data_parallel = most});
  return found;
}

/// The threads of TBB.
SearchThreads search_threads() {
  // The more a search looks ahead, the less of it is asked for.
  constexpr std::size_t kMost = 16;
  using Control = tbb::global_control;
  const std::size_t allowed = Control::active_value(Control::max_allowed_parallelism);
  return {.number = static_cast<int>(std::min(allowed, kMost)),
          .for_each = [](int size, const auto& work) {
            tbb::this_task_arena::isolate([&] { tbb::parallel_for(0, size, work); });
          }};
}

bool is_faster(const PricedStrategy& one, const PricedStrategy& other) {
  return one.cost && (!other.cost || one.cost->step_s < other.cost->step_s);
}

}  // namespace

/// With the devices that are present.
EngineConfig Session::Impl::present_engine() const {
  EngineConfig present = engine_config();
  for (std::size_t d = 0; d < present.device_budgets.size(); ++d) {
    if (devices[d].state != DeviceList::State::present) present.device_budgets[d] = 0;
  }
  return present;
}

/// The cost of a step of the trial, had it this configuration, alone on the devices that are
/// present. Nothing if it does not fit.
std::optional<StepCost> Session::Impl::price(const SessionTrial& trial, const TrialConfig& priced,
                                             const VirtualCosts& costs) const {
  const auto plan = planner.plan_of(trial, priced);
  return plan ? step_cost(plan, present_engine(), costs) : std::nullopt;
}

/// For the allocator `fill`. Leaves out contention for cores, which slows all trials alike. One
/// that is too large to be simulated in a moment is measured instead, while it trains.
void Session::Impl::predict_speed(SessionTrial& trial) const {
  constexpr double kMostOps = 2e4;  // of a step: about a second for eight sizes
  const TrainConfig& train = trial.config.train;
  const double compute_s = trial.planned.summary.compute_s_per_step;
  if (compute_s > 0) trial.lanes.speed.predict(1, 1 / compute_s);
  const auto& program = trial.plan->programs[kStepAfterStep.index()];
  const bool is_small = program && static_cast<double>(program->ops.size()) < kMostOps;
  if (config.sharing != SharingKind::fill || train.strategy || !is_small) return;
  const VirtualCosts costs = known_costs(&trial);
  TrialConfig priced = priced_trial(trial.config);
  trial.lanes.speed = predicted_speed(
      planner.sizes(trial), trial.lanes.max,
      [&](int lanes) SPILLWAY_REQUIRES(mutex) -> std::optional<double> {
        priced.train.data_parallel = lanes;
        const bool is_given = std::ssize(train.lane_groups) == lanes;
        priced.train.lane_groups = is_given ? train.lane_groups : std::vector<int>();
        const auto cost = price(trial, priced, costs);
        return cost ? std::optional(cost->step_s) : std::nullopt;
      });
}

SearchResult Session::search(JobId id, const SearchConfig& config) const {
  if (config.proposals < 1) {
    throw ConfigError("proposals", 0, fmt::format("is {}, must be at least 1", config.proposals));
  }
  Impl& impl = *impl_;
  if (impl.config.hosts.several()) {
    throw ConfigError("train.strategy", 0,
                      "cannot be used with several hosts or hosts.start_size; leave hosts out");
  }
  const MutexLock lock(impl.mutex);
  const SessionTrial& trial = impl.known_trial(id);
  if (impl.shell || trial.ended()) throw Error("search for a strategy before the run begins");
  const std::vector<Bytes> budgets = impl.devices.budgets();
  const int most_devices = static_cast<int>(budgets.size());
  if (config.devices < 0 || config.devices > most_devices) {
    throw ConfigError(
        "devices", 0,
        fmt::format("is {}, must be from 0, which is all, to {}, the number of devices",
                    config.devices, most_devices));
  }
  const int devices = config.devices == 0 ? most_devices : config.devices;
  const VirtualCosts costs = impl.measure_costs();
  TrialConfig priced = priced_trial(trial.config);
  priced.train.strategies.clear();

  const SearchSpace space = space_of(trial, budgets, devices);
  // An estimator for each thread: it keeps what strategies have in common. The threads call the
  // functions below while this thread holds the mutex. They only read.
  const JobShape shape = impl.planner.shape_of(trial, priced);
  const EngineConfig engine = impl.present_engine();
  tbb::enumerable_thread_specific<StepEstimator> estimators(
      [&] { return StepEstimator(trial.model->spec, trial.profile, shape, engine, costs); });
  SearchResult result = search_strategy(
      space,
      [&](const StrategyConfig& strategy) SPILLWAY_REQUIRES(impl.mutex) {
        TrialConfig variant = priced;
        variant.train.strategy = strategy;
        return impl.price(trial, variant, costs);
      },
      config,
      [&](const Strategy& strategy, double most_s) {
        return estimators.local().estimate(strategy, most_s);
      },
      search_threads());
  std::vector<PricedStrategy> lanes = lanes_on(space.devices, space.groups);
  for (PricedStrategy& each : lanes) {
    TrialConfig variant = priced;
    variant.train.data_parallel = each.data_parallel;
    each.cost = impl.price(trial, variant, costs);
    if (!is_faster(result.best, each)) result.best = each;
  }
  result.known.insert(result.known.begin(), lanes.begin(), lanes.end());
  return result;
}

}  // namespace spillway
