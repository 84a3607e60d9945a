#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/fold.h"
#include "models/data_source.h"
#include "models/model.h"
#include "trainer/op_runner.h"
#include "trainer/range_runner.h"
#include "trainer/session.h"

namespace spillway {

/// What the ops of one trial compute. State that outlives an op lies in the job's homes; what is
/// here is a handful of scalars a virtual node. The step program orders all calls but
/// take_progress().
class TrainingJob {
 public:
  TrainingJob(std::shared_ptr<const Model> model, TrialConfig config,
              std::shared_ptr<const JobPlan> plan);

  /// Weights by (seed, parameter); moments are zero already.
  void admit(std::byte* home) const;
  OpRunner::Keep run_op(const OpCall& call);
  void run_host_op(const HostCall& call);

  /// What a watcher may know.
  struct Progress {
    std::vector<double> losses;  ///< one a committed step
    std::vector<std::pair<std::int64_t, double>> eval_losses;
    double gradient_norm = 0;    ///< of the last step
    double weight_per_step = 0;  ///< target tokens of a step
    std::string weights_xxh3;    ///< once finished
  };
  /// Losses since the last call, and the other values as they are. Any thread.
  Progress take_progress();
  const TrainConfig& train() const { return config_.train; }

 private:
  void load(const HostCall& call, bool evaluation) const;
  void reduce(const HostCall& call, int layer);
  void add_partials(const HostCall& call, int layer) const;
  void commit(const HostCall& call);
  void update(const HostCall& call, int weights_buffer) const;
  void update_weights(const HostCall& call, int param) const;
  void finish_evaluation(const HostCall& call);
  void finish(const HostCall& call);
  void fold_term(const OpCall& call, int layer, int param, const float* term) const;
  void merge_sums(const OpCall& call) const;
  /// A parameter at home: the same place in every plan.
  std::byte* value(std::byte* home, int param) const;
  /// The sum of a parameter once reduced: in the range of its last use.
  float* sum(const HostCall& call, int param) const;

  std::shared_ptr<const Model> model_;
  TrialConfig config_;
  std::shared_ptr<const JobPlan> plan_;
  std::int64_t vn_size_;
  std::vector<WeightedSum> losses_, eval_losses_;  // by virtual node, of the open step
  std::vector<double> squared_norms_;              // by parameter, of gradient sums; frozen: 0
  double gradient_scale_ = 1;                      // of the updates that follow the last commit
  std::mutex mutex_;
  Progress progress_;  // under mutex_
};

}  // namespace spillway
