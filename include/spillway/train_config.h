#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "spillway/choices.h"

namespace spillway {

/// Value of TrainConfig::data_parallel: as many devices as help.
inline constexpr int kAutoDataParallel = 0;

/// A rule of a trial's autoscaler, see scheduler/elastic/heuristic.h.
struct AutoscaleRule {
  std::string rule;                      ///< throughput | linear | stepped | straggler
  std::map<std::string, double> params;  ///< by name; a missing one has its default
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
  /// them. 0: `data_parallel`; with kAutoDataParallel, as many as groups and devices allow at
  /// submission.
  int max_data_parallel = 0;
  /// Rules that decide after each step how many devices the trial has or, with sharing, asks for.
  /// `straggler` names devices that get no part of the trial. Empty: none.
  std::vector<AutoscaleRule> autoscale;
  int priority = 1;  ///< 1 to 100, used by sharing; larger is more important
  OrderChoice order = OrderChoice::automatic;  ///< order of the units of a step
  /// Type in which layers compute. Weights, optimizer state, growing gradient sums,
  /// norms, softmax and loss are fp32 in both cases.
  FloatType dtype = FloatType::fp32;
  /// Type of gradient sums on their way to the host and there. bf16 rounds the sum of
  /// each reduction group and each sum of these.
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
  double warmup_ratio = 0;  ///< part of the steps with linear warm-up
  /// Lengths that the trial had before it was extended, ascending and below max_steps. Steps before
  /// the first one have the schedule of that length.
  std::vector<std::int64_t> extended_from;
  /// Learning rate of the steps after that; `constant` stays constant in any case.
  LrExtension lr_scheduler_extend = LrExtension::none;
  std::int64_t eval_steps = 0;    ///< steps between evaluations; 0: only at the end
  std::int64_t eval_batches = 8;  ///< batches per evaluation

  /// Throws ConfigError that names the field (`train.virtual_nodes`, ...), the value, the remedy.
  void validate() const;
};

}  // namespace spillway
