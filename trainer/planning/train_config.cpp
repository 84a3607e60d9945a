#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "core/base/config_check.h"
#include "core/base/divisor.h"
#include "scheduler/plan/placement.h"
#include "spillway/model.h"
#include "spillway/trial_config.h"
#include "trainer/config/batch_split.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/parameter_groups.h"
#include "trainer/config/train_changes.h"
#include "trainer/planning/rules.h"
#include "trainer/planning/trial_model.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {
namespace {

std::int64_t sum(const std::vector<int>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::string not_a_divisor(std::int64_t value, const char* of, std::int64_t number) {
  return fmt::format("is {}, must be a divisor of {}, which is {}; write {}, or 0 for the default",
                     value, of, number, largest_divisor(number, value));
}

/// Checks how the batch is divided into virtual nodes, groups and lanes.
void check_split(const TrainConfig& train, const FieldCheck& fields, ConfigCheck& check) {
  const int nodes = virtual_nodes_of(train), lanes = train.data_parallel;
  const int most = train.max_data_parallel;
  const bool has_lanes = fields.holds("data_parallel");
  check.require(!has_lanes || most == 0 || most >= lanes, "max_data_parallel",
                fmt::format("is {}, below train.data_parallel {}", most, lanes));
  if (!fields.holds("virtual_nodes")) return;
  check.require(!fields.holds("batch_size") || train.batch_size % nodes == 0, "virtual_nodes",
                not_a_divisor(nodes, "train.batch_size", train.batch_size));
  if (!fields.holds("reduction_groups")) return;
  const int groups = reduction_groups_of(train);
  if (!check.require(nodes % groups == 0, "reduction_groups",
                     not_a_divisor(groups, "train.virtual_nodes", nodes)))
    return;
  const std::string too_many = fmt::format(
      ", above train.reduction_groups {}; a device takes whole reduction groups", groups);
  check.require(lanes <= groups, "data_parallel", fmt::format("is {}{}", lanes, too_many));
  check.require(most <= groups, "max_data_parallel", fmt::format("is {}{}", most, too_many));
  check.require(
      !has_lanes || train.lane_groups.empty() ||
          (train.lane_groups.size() == static_cast<std::size_t>(lanes) &&
           std::ranges::min(train.lane_groups) >= 1 && sum(train.lane_groups) == groups),
      "lane_groups",
      fmt::format("must be empty, or have {} positive numbers (train.data_parallel) whose sum "
                  "is {} (train.reduction_groups)",
                  lanes, groups));
}

void check_extension(const TrainConfig& train, const FieldCheck& fields, ConfigCheck& check) {
  if (train.extended_from.empty() || !fields.holds("extended_from")) return;
  std::vector<std::int64_t> ends = train.extended_from;
  ends.push_back(train.max_steps);
  const bool ascends = std::ranges::adjacent_find(ends, std::greater_equal()) == ends.end();
  check.require(ascends, "extended_from",
                fmt::format("is [{}], must ascend and be below train.max_steps {}",
                            fmt::join(train.extended_from, ", "), train.max_steps));
  check.require(
      !spans_all_steps(train.lr_scheduler_type) || train.lr_function.factor ||
          train.lr_scheduler_extend != LrExtension::none,
      "lr_scheduler_extend",
      fmt::format("is none, but train.lr_scheduler_type {} has no learning rate after its "
                  "end at step {}; write restart or stretch",
                  to_string(train.lr_scheduler_type), train.extended_from.front()));
}

void check_strategy(const TrainConfig& train, ConfigCheck& check) {
  if (!train.strategy) return;
  check.run([&] { train.strategy->validate(); });
  const bool has_lanes = train.data_parallel != 1 || train.max_data_parallel > 1 ||
                         !train.lane_groups.empty() || !train.autoscale.empty() ||
                         !train.strategies.empty();
  check.require(!has_lanes, "strategy",
                "cannot be used with data_parallel, max_data_parallel, lane_groups or autoscale; "
                "if its devices may change, give it `devices`, the number that it is for");
}

/// A problem of the strategy for so many devices.
std::string problem_for(int devices, const std::string& problem) {
  return fmt::format("for {} {} {}", devices, devices == 1 ? "device" : "devices", problem);
}

void check_for(int devices, const std::function<void()>& check) {
  try {
    check();
  } catch (const ConfigError& error) {
    throw ConfigError(error.field, 0, problem_for(devices, error.problem));
  }
}

void check_strategies(const TrainConfig& train, const FieldCheck& fields, ConfigCheck& check) {
  const bool has_groups = fields.holds("virtual_nodes") && fields.holds("reduction_groups");
  for (const auto& [devices, strategy] : train.strategies) {
    const auto require = [&, number = devices](bool holds, const std::string& problem) {
      check.require(holds, "strategy", problem_for(number, problem));
    };
    check.run(
        [&, number = devices, &each = strategy] { check_for(number, [&] { each.validate(); }); });
    require(strategy.num_tracks() == devices,
            fmt::format("has {} tracks; name one track for each device", strategy.num_tracks()));
    require(!has_groups || devices <= reduction_groups_of(train),
            fmt::format("needs train.reduction_groups of at least {}", devices));
    require(train.lane_groups.empty(), "cannot be used with lane_groups; leave them out");
  }
}

void check_changes(const TrainConfig& train, ConfigCheck& check) {
  for (std::size_t i = 0; i < train.changes.size(); ++i) {
    const TrainChange& change = train.changes[i];
    const std::string name = fmt::format("changes[{}].", i);
    check.require(change.step >= 0, name + "step",
                  fmt::format("is {}, must be the number of steps before the change, at least 0",
                              change.step));
    check.run([&] { require_valid(change.values, "train." + name); });
  }
}

void check_function(const TrainConfig& train, ConfigCheck& check) {
  const LrFunction& function = train.lr_function;
  check.require(function.name.empty() == !function.factor, "lr_function",
                "must have a name and a function, or neither");
  check.require(!function.factor || train.warmup_ratio == 0, "warmup_ratio",
                fmt::format("is {}, but train.lr_function gives the rate of every step; remove one",
                            train.warmup_ratio));
}

/// Errors that only making the model can find. If `train` is wrong, errors about its fields are
/// ignored.
std::unique_ptr<Model> make_model(const ModelFactory& make, const TrainConfig& train,
                                  bool can_train) {
  try {
    auto model = make(can_train ? train.batch_size / virtual_nodes_of(train) : 2);
    model->spec.validate();
    if (can_train) require_matches(train.parameter_groups, model->spec);
    if (can_train && train.strategy)
      placed(*train.strategy, model->spec, reduction_groups_of(train));
    if (!can_train) return model;
    for (const auto& [devices, strategy] : train.strategies) {
      check_for(devices,
                [&, &each = strategy] { placed(each, model->spec, reduction_groups_of(train)); });
    }
    return model;
  } catch (const ConfigError& error) {
    if (can_train || error.field.starts_with("model")) throw;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Model> make_valid_model(const TrialConfig& trial) {
  const OneTorchThread one_thread;
  ConfigCheck check;
  const bool can_train = check.run([&] { trial.train.validate(); });
  std::unique_ptr<Model> model;
  if (trial.model) check.run([&] { model = make_model(trial.model, trial.train, can_train); });
  check.finish();
  return model;
}

void TrialConfig::validate() const { make_valid_model(*this); }

const StrategyConfig* TrainConfig::strategy_on(int devices) const {
  if (strategy) return &*strategy;
  const auto found = strategies.find(devices);
  return found == strategies.end() ? nullptr : &found->second;
}

bool TrainConfig::skips(int devices) const {
  const auto above = strategies.lower_bound(devices);
  const bool is_between = above != strategies.begin() && above != strategies.end();
  return is_between && above->first != devices;
}

int TrainConfig::most_devices() const {
  if (max_data_parallel > 0) return max_data_parallel;
  return std::max(data_parallel, strategies.empty() ? 0 : strategies.rbegin()->first);
}

void TrainConfig::validate() const {
  ConfigCheck check("train.");
  FieldCheck fields(check);
  visit_train(*this, fields);
  check_split(*this, fields, check);
  check_extension(*this, fields, check);
  check_function(*this, check);
  check_changes(*this, check);
  check_strategy(*this, check);
  check_strategies(*this, fields, check);
  check.run([&] { require_valid(parameter_groups); });
  check.run([&] { make_rules(*this); });
  check.finish();
}

}  // namespace spillway
