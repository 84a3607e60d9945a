#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <string>

#include "core/base/config_check.h"
#include "scheduler/elastic/allocator.h"
#include "spillway/model.h"
#include "spillway/trial_config.h"
#include "trainer/planning/plan_trial.h"
#include "trainer/planning/rules.h"
#include "trainer/planning/trial_model.h"

namespace spillway {
namespace {

/// As few digits as say which number it is.
std::string text(double value) {
  char digits[32];
  const bool is_short = std::abs(value) < 1e9 && std::abs(value) >= 1e-4;
  const auto format =
      is_short || value == 0 ? std::chars_format::fixed : std::chars_format::general;
  return {digits, std::to_chars(digits, std::end(digits), value, format).ptr};
}

std::int64_t sum(const std::vector<int>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

bool require_positive(ConfigCheck& check, std::int64_t value, const std::string& field) {
  return check.require(value >= 1, field, "is " + std::to_string(value) + ", must be at least 1");
}

void require_range(ConfigCheck& check, double value, double low, double high,
                   const std::string& field) {
  check.require(
      value >= low && value < high, field,
      "is " + text(value) + ", must be at least " + text(low) + " and below " + text(high));
}

/// How the batch is split over virtual nodes, their groups and lanes.
void check_split(const TrainConfig& train, ConfigCheck& check) {
  const int nodes = train.virtual_nodes, lanes = train.lanes, most = train.max_lanes;
  const bool has_batch = require_positive(check, train.batch_size, "batch_size");
  const bool has_lanes = lanes == kAutoLanes || require_positive(check, lanes, "lanes");
  check.require(!has_lanes || most == 0 || most >= lanes, "max_lanes",
                "is " + std::to_string(most) + ", below train.lanes " + std::to_string(lanes));
  if (!require_positive(check, nodes, "virtual_nodes")) return;
  check.require(!has_batch || train.batch_size % nodes == 0, "virtual_nodes",
                "is " + std::to_string(nodes) + ", which does not divide train.batch_size " +
                    std::to_string(train.batch_size) +
                    "; virtual nodes are equal slices of the batch");
  int groups = train.reduction_groups;
  if (!check.require(groups == 0 || (groups > 0 && nodes % groups == 0), "reduction_groups",
                     "is " + std::to_string(groups) +
                         ", which does not divide train.virtual_nodes " + std::to_string(nodes) +
                         "; 0 chooses a divisor"))
    return;
  if (groups == 0) groups = default_groups(nodes);
  const std::string too_many =
      ", above train.reduction_groups " + std::to_string(groups) + "; a lane takes whole groups";
  check.require(lanes <= groups, "lanes", "is " + std::to_string(lanes) + too_many);
  check.require(most <= groups, "max_lanes", "is " + std::to_string(most) + too_many);
  check.require(!has_lanes || train.lane_groups.empty() ||
                    (train.lane_groups.size() == static_cast<std::size_t>(lanes) &&
                     std::ranges::min(train.lane_groups) >= 1 && sum(train.lane_groups) == groups),
                "lane_groups",
                "must be empty or hold one positive number for each of train.lanes " +
                    std::to_string(lanes) + ", train.reduction_groups in all");
}

void check_optimizer(const TrainConfig& train, ConfigCheck& check) {
  check.require(train.optimizer == "adamw" || train.optimizer == "sgd", "optimizer",
                "is '" + train.optimizer + "', must be adamw or sgd");
  const std::string& schedule = train.lr_scheduler_type;
  check.require(schedule == "cosine" || schedule == "linear" || schedule == "constant",
                "lr_scheduler_type", "is '" + schedule + "', must be cosine, linear or constant");
  require_range(check, train.learning_rate, 0, 1e6, "learning_rate");
  require_range(check, train.weight_decay, 0, 1e6, "weight_decay");
  require_range(check, train.momentum, 0, 1, "momentum");
  require_range(check, train.adam_beta1, 0, 1, "adam_beta1");
  require_range(check, train.adam_beta2, 0, 1, "adam_beta2");
  require_range(check, train.adam_epsilon, 0, 1, "adam_epsilon");
  require_range(check, train.max_grad_norm, 0, 1e30, "max_grad_norm");
  require_range(check, train.warmup_ratio, 0, 1, "warmup_ratio");
}

/// What only a model with its layers can say. It is for virtual nodes of one size: where `train` is
/// wrong, what it says of that does not count.
std::unique_ptr<Model> make_model(const ModelFactory& make, const TrainConfig& train,
                                  bool can_train) {
  try {
    auto model = make(can_train ? train.batch_size / train.virtual_nodes : 2);
    model->spec.validate();
    return model;
  } catch (const ConfigError& error) {
    if (can_train || error.field.starts_with("model")) throw;
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Model> make_valid_model(const TrialConfig& trial) {
  ConfigCheck check;
  const bool can_train = check.run([&] { trial.train.validate(); });
  std::unique_ptr<Model> model;
  if (trial.model) check.run([&] { model = make_model(trial.model, trial.train, can_train); });
  check.finish();
  return model;
}

void TrialConfig::validate() const { make_valid_model(*this); }

void TrainConfig::validate() const {
  ConfigCheck check("train.");
  check_split(*this, check);
  check_optimizer(*this, check);
  require_positive(check, max_steps, "max_steps");
  require_positive(check, eval_batches, "eval_batches");
  check.require(eval_steps >= 0, "eval_steps",
                "is " + std::to_string(eval_steps) + ", must be 0 (at the end only) or positive");
  check.require(order == "auto" || order == "shard_major" || order == "vn_major", "order",
                "is '" + order + "', must be auto, shard_major or vn_major");
  for (const auto& [field, value] : {std::pair{"dtype", dtype}, {"gradient_dtype", gradient_dtype}})
    check.require(value == "fp32" || value == "bf16", field,
                  "is '" + value + "', must be fp32 or bf16");
  check.run([&] { check_priority("train.priority", priority); });
  check.run([&] { make_rules(*this); });
  check.finish();
}

}  // namespace spillway
