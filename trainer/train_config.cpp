#include <algorithm>
#include <numeric>
#include <string>

#include "core/error.h"
#include "scheduler/allocator.h"
#include "trainer/rules.h"
#include "trainer/session.h"

namespace spillway {
namespace {

void require(bool holds, const std::string& field, const std::string& problem) {
  if (!holds) throw ConfigError("train." + field, 0, problem);
}

std::string text(double value) {
  std::string digits = std::to_string(value);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

std::int64_t sum(const std::vector<int>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

void require_positive(std::int64_t value, const std::string& field) {
  require(value >= 1, field, "is " + std::to_string(value) + ", must be at least 1");
}

void require_range(double value, double low, double high, const std::string& field) {
  require(value >= low && value < high, field,
          "is " + text(value) + ", must be at least " + text(low) + " and below " + text(high));
}

}  // namespace

void TrainConfig::validate() const {
  require_positive(batch_size, "batch_size");
  require_positive(virtual_nodes, "virtual_nodes");
  if (lanes != kAutoLanes) require_positive(lanes, "lanes");
  require_positive(max_steps, "max_steps");
  require_positive(eval_batches, "eval_batches");
  require(batch_size % virtual_nodes == 0, "virtual_nodes",
          "is " + std::to_string(virtual_nodes) + ", which does not divide train.batch_size " +
              std::to_string(batch_size) + "; virtual nodes are equal slices of the batch");
  require(reduction_groups >= 0 && (reduction_groups == 0 || virtual_nodes % reduction_groups == 0),
          "reduction_groups",
          "is " + std::to_string(reduction_groups) +
              ", which does not divide train.virtual_nodes " + std::to_string(virtual_nodes) +
              "; 0 chooses a divisor");
  require(reduction_groups == 0 || lanes <= reduction_groups, "lanes",
          "is " + std::to_string(lanes) + ", above train.reduction_groups " +
              std::to_string(reduction_groups) + "; a lane takes whole groups");
  require(max_lanes == 0 || max_lanes >= lanes, "max_lanes",
          "is " + std::to_string(max_lanes) + ", below train.lanes " + std::to_string(lanes));
  require(reduction_groups == 0 || max_lanes <= reduction_groups, "max_lanes",
          "is " + std::to_string(max_lanes) + ", above train.reduction_groups " +
              std::to_string(reduction_groups) + "; a lane takes whole groups");
  check_priority("train.priority", priority);
  make_rules(*this);
  require(lane_groups.empty() ||
              (lane_groups.size() == static_cast<std::size_t>(lanes) &&
               std::ranges::min(lane_groups) >= 1 && sum(lane_groups) == reduction_groups),
          "lane_groups",
          "must be empty or hold one positive number for each of train.lanes " +
              std::to_string(lanes) + ", train.reduction_groups in all");
  require(order == "auto" || order == "shard_major" || order == "vn_major", "order",
          "is '" + order + "', must be auto, shard_major or vn_major");
  require(optimizer == "adamw" || optimizer == "sgd", "optimizer",
          "is '" + optimizer + "', must be adamw or sgd");
  require(lr_scheduler_type == "cosine" || lr_scheduler_type == "linear" ||
              lr_scheduler_type == "constant",
          "lr_scheduler_type",
          "is '" + lr_scheduler_type + "', must be cosine, linear or constant");
  require_range(learning_rate, 0, 1e6, "learning_rate");
  require_range(weight_decay, 0, 1e6, "weight_decay");
  require_range(momentum, 0, 1, "momentum");
  require_range(adam_beta1, 0, 1, "adam_beta1");
  require_range(adam_beta2, 0, 1, "adam_beta2");
  require_range(adam_epsilon, 0, 1, "adam_epsilon");
  require_range(max_grad_norm, 0, 1e30, "max_grad_norm");
  require_range(warmup_ratio, 0, 1, "warmup_ratio");
  require(eval_steps >= 0, "eval_steps",
          "is " + std::to_string(eval_steps) + ", must be 0 (at the end only) or positive");
}

}  // namespace spillway
