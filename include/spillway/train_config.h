#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "spillway/choices.h"
#include "spillway/strategy_config.h"

namespace spillway {

/// Value of TrainConfig::data_parallel: as many devices as help.
inline constexpr int kAutoDataParallel = 0;

/// A rule of a trial's autoscaler, see scheduler/elastic/heuristic.h.
struct AutoscaleRule {
  RuleKind rule = RuleKind::throughput;  ///< how it decides
  std::map<std::string, double> params;  ///< by name; a missing one has its default
};

/// Values that may change while a trial trains. Nothing: the value stays.
struct TrainValues {
  std::optional<double> learning_rate;  ///< the schedule keeps its shape
  std::optional<double> weight_decay;   ///< see TrainConfig
  std::optional<double> max_grad_norm;  ///< see TrainConfig
  bool operator==(const TrainValues&) const = default;
};

/// From the update after the gradients of step `step` (from 0) on, a trial has other values.
struct TrainChange {
  std::int64_t step = 0;  ///< steps that were committed before
  TrainValues values;     ///< of that step and later ones
  bool operator==(const TrainChange&) const = default;
};

/// Parameters that train with values of their own, like a parameter group of torch::optim.
struct ParameterGroup {
  /// A whole name of Session::weights(), in which `*` stands for any characters and `?` for one:
  /// "encoder.*", "*.bias".
  std::string pattern;
  /// Factor of the learning rate, also after Session::set(). 0 keeps the weights as they are, but
  /// computes their gradients, which count for max_grad_norm.
  double learning_rate_scale = 1;
  /// Instead of the trial's; Session::set() does not change it. Nothing: the trial's, which does
  /// not apply to norms and biases.
  std::optional<double> weight_decay;
};

/// A schedule of your own.
struct LrFunction {
  /// Identifies the function and its version: "inverse square root 2". Part of the contract: a
  /// trial resumes only with the same name.
  std::string name;
  /// Factor of the learning rate in the update after the gradients of step `step` (from 0): finite,
  /// at least 0. Any thread may call it at any time, so it must depend on the step alone.
  std::function<double(std::int64_t step)> factor = nullptr;
};

/// How a trial trains. Names follow Hugging Face's TrainingArguments where it has one.
struct TrainConfig {
  std::uint64_t seed = 1;        ///< of initial weights, dropout, augmentation, order of samples
  std::int64_t batch_size = 32;  ///< samples per step, over all virtual nodes
  int virtual_nodes = 8;         ///< divides batch_size; 0: its largest divisor up to 8
  int reduction_groups = 0;      ///< divides virtual_nodes; 0: the largest divisor up to 8
  /// Devices that compute a step together: at most reduction_groups and the number of devices.
  /// Unequal devices get fewer if that is faster. kAutoDataParallel: starts with the maximum, and
  /// the rules (`throughput` by default) adjust it; with sharing the trial asks for the maximum.
  int data_parallel = 1;
  /// Reduction groups of each of these devices; empty: as equal as possible.
  std::vector<int> lane_groups;
  /// Most devices that rules, shares or Session::resize() may give; host memory is reserved for
  /// them. 0: the larger of `data_parallel` and the largest number in `strategies`; with
  /// kAutoDataParallel or SharingKind::fill, at least as many as groups and devices allow at
  /// submission.
  int max_data_parallel = 0;
  /// Rules that decide after each step how many devices the trial has or, with sharing, asks for.
  /// `straggler` names devices that get no part of the trial. Empty: none.
  std::vector<AutoscaleRule> autoscale;
  int priority = 1;  ///< 1 to 100, used by sharing; larger is more important
  OrderChoice order = OrderChoice::automatic;  ///< order of the units of a step
  /// Where its layers are computed, instead of `data_parallel` and `order`.
  std::optional<StrategyConfig> strategy;
  /// Strategies by number of devices, each with as many tracks, for a trial whose devices change.
  /// With fewer devices than the smallest number, or more than the largest, it is data-parallel.
  /// Between two numbers it has the strategy of the smaller one and leaves devices free. If
  /// `data_parallel` or Session::resize() asks for such a number, it is data-parallel.
  std::map<int, StrategyConfig> strategies;
  /// Type in which layers compute. Weights, optimizer state, growing gradient sums and the loss are
  /// fp32 in both cases, as are norms and softmax of families; spillway/graph.h for own modules.
  FloatType dtype = FloatType::fp32;
  /// Type of gradient sums in transfer and in host memory. bf16 rounds the sum of each reduction
  /// group and each sum of these.
  FloatType gradient_dtype = FloatType::fp32;
  std::int64_t max_steps = 50;                     ///< length of the trial
  OptimizerKind optimizer = OptimizerKind::adamw;  ///< rule of the updates
  double learning_rate = 1e-3;                     ///< the maximum, after the warm-up
  double weight_decay = 0.01;                      ///< not for norms and biases
  double momentum = 0.9;                           ///< sgd only
  double adam_beta1 = 0.9;                         ///< adamw only
  double adam_beta2 = 0.999;                       ///< adamw only
  double adam_epsilon = 1e-8;                      ///< adamw only
  double max_grad_norm = 1.0;                      ///< 0: no clipping
  /// Learning rate after the warm-up.
  LrSchedulerType lr_scheduler_type = LrSchedulerType::cosine;
  double warmup_ratio = 0;   ///< part of the steps with linear warm-up
  double decay_ratio = 0.1;  ///< part of the steps in which `warmup_stable_decay` falls to 0
  /// Lengths that the trial had before it was extended, ascending and below max_steps. Steps before
  /// the first one have the schedule of that length.
  std::vector<std::int64_t> extended_from;
  /// Learning rate of the steps after that, for `cosine` and `linear`. The others are constant
  /// again after an extension, and `warmup_stable_decay` falls before the new end.
  LrExtension lr_scheduler_extend = LrExtension::none;
  /// The learning rate by step, instead of `lr_scheduler_type` and without warm-up; an extended
  /// trial needs no `lr_scheduler_extend`. Null function: none.
  LrFunction lr_function;
  /// The first one that matches the name of a parameter counts; others train with the values above.
  /// Each must match a trained parameter of the model.
  std::vector<ParameterGroup> parameter_groups;
  /// In the order in which they were made; of two for the same step, the later one counts.
  /// Session::set() adds to them.
  std::vector<TrainChange> changes;
  std::int64_t eval_steps = 0;    ///< steps between evaluations; 0: only at the end
  std::int64_t eval_batches = 8;  ///< batches per evaluation

  /// The strategy that it has on so many devices; null: none, it is data-parallel.
  const StrategyConfig* strategy_on(int devices) const;
  /// Whether so many devices lie between two numbers with strategies.
  bool skips(int devices) const;
  /// `max_data_parallel`; if that is 0, the larger of `data_parallel` and the largest number of
  /// devices with a strategy.
  int most_devices() const;
  /// Throws ConfigError that names the field (`train.virtual_nodes`, ...), the value, the remedy.
  void validate() const;
};

}  // namespace spillway
