#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace spillway {

/// TrainConfig::lanes: as many as pay.
inline constexpr int kAutoLanes = 0;

/// A rule of a trial's autoscaler, see scheduler/elastic/heuristic.h.
struct AutoscaleRule {
  std::string rule;  ///< throughput | linear | stepped | straggler
  std::map<std::string, double> params;
};

/// Names follow Hugging Face's TrainingArguments where it has one.
struct TrainConfig {
  std::uint64_t seed = 1;
  std::int64_t batch_size = 32;  ///< samples a step, over all virtual nodes
  int virtual_nodes = 8;         ///< divides batch_size
  int reduction_groups = 0;      ///< divides virtual_nodes; 0: the largest divisor up to 8
  /// At most reduction_groups and the number of devices; fewer where that is faster, on unequal
  /// ones. kAutoLanes: begins with as many as there may be, and its rules go on from there
  /// (`throughput` where there are none); where devices are shared, asks for as many.
  int lanes = 1;
  /// Groups of each lane; empty: as equal as can be.
  std::vector<int> lane_groups;
  /// The most lanes that rules, shares or Session::resize() may give; host memory is reserved for
  /// them. 0: `lanes`; of kAutoLanes, what groups and devices allow at submission.
  int max_lanes = 0;
  /// Decide after every step how many lanes the trial goes on with; where devices are shared, how
  /// many it asks for. `straggler` names devices that take no lane of it. Empty: none.
  std::vector<AutoscaleRule> autoscale;
  int priority = 1;  ///< 1 to 100, where devices are shared; a larger one is more important
  std::string order = "auto";  ///< auto | shard_major | vn_major
  /// fp32 | bf16: what layers compute with. Weights and moments are fp32, and sums of gradients
  /// while they grow, as are norms, softmax and loss.
  std::string dtype = "fp32";
  /// fp32 | bf16: what gradients travel and are kept as at home. bf16 rounds the sum of each
  /// reduction group and each sum of such sums.
  std::string gradient_dtype = "fp32";
  std::int64_t max_steps = 50;
  std::string optimizer = "adamw";  ///< adamw | sgd
  double learning_rate = 1e-3, weight_decay = 0.01;
  double momentum = 0.9;  ///< of sgd
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;                ///< 0: no clipping
  std::string lr_scheduler_type = "cosine";  ///< cosine | linear | constant
  double warmup_ratio = 0;
  std::int64_t eval_steps = 0;  ///< 0: at the end only
  std::int64_t eval_batches = 8;

  /// Throws ConfigError naming the field (`train.virtual_nodes`, ...), the value, the remedy.
  void validate() const;
};

}  // namespace spillway
