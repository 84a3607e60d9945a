#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/fold.h"
#include "core/base/mutex.h"
#include "spillway/data_source.h"
#include "spillway/model.h"
#include "spillway/results.h"
#include "spillway/trial_config.h"
#include "trainer/checkpoint/state_gate.h"
#include "trainer/compute/range_runner.h"
#include "trainer/compute/trial_state.h"
#include "trainer/runtime/op_runner.h"

namespace spillway {

/// Of samples of an evaluation.
struct EvaluationSums {
  WeightedSum loss;
  std::vector<double> metrics;  ///< of all metrics, in their order
};
Evaluation evaluation_of(const ModelSpec& model, const EvaluationSums& sums);

/// What the ops of one trial compute. State that outlives an op lies in the job's homes; this
/// object keeps a few scalars per virtual node. The step program orders all calls except
/// those that any thread may make.
class TrainingJob {
 public:
  TrainingJob(std::shared_ptr<const Model> model, TrialConfig config,
              std::shared_ptr<const JobPlan> plan);

  /// Starts the trial from this checkpoint; call before admit(). Its plans start with the step of
  /// the generation.
  void start_from(Generation generation) { start_ = std::move(generation); }
  /// Writes the initial weights, or those of the checkpoint; moments are already zero.
  void admit(const Home& home);
  /// The file of the model that has a shared block; null: none. See Model::map.
  std::shared_ptr<std::byte> map(const SharedBlock& block) const;
  OpRunner::Keep run_op(const OpCall& call);
  void run_host_op(const HostCall& call);
  /// Whether a commit has thrown; on other hosts it throws the same. Any thread.
  bool failed_to_commit() const { return failed_to_commit_; }
  /// Before an exchange: writes the numbers of this host that it sends, if it sends any. `word`:
  /// HostStepWords, used if state is sharded.
  void write_numbers(const HostCall& call, int word);
  /// The words of the step that was committed last, by host. Not while the next one commits.
  const std::vector<int>& words() const { return words_; }
  /// Keeps what evaluations predict; call before admit().
  void keep_predictions() { keeps_predictions_ = true; }
  /// What a virtual node of an evaluation predicts, [B, ...].
  struct Prediction {
    std::vector<std::int64_t> shape;
    at::ScalarType dtype = at::kFloat;
    std::vector<std::byte> values;
  };
  /// By virtual node of the last evaluation, once the trial has ended.
  std::vector<Prediction> take_predictions() { return std::move(predictions_); }
  /// The last evaluation by virtual node, once the trial has ended.
  std::vector<EvaluationSums> evaluation_by_node() const;
  /// Completes the updates that follow the commit of `step`, of what this host keeps. The open step
  /// is dropped, and nothing else may run. Afterwards the state is that of the commit.
  void complete_updates(std::int64_t step);
  /// What hosts told each other before the last commit, if state is shadowed.
  const std::vector<std::byte>& last_numbers() const { return last_numbers_; }
  /// Whether this host has told the others its numbers for the commit of step `step` (from 0).
  bool has_told(std::int64_t step) const { return told_.home && told_.step == step; }
  Bytes num_bytes_told() const;  ///< of the numbers of all hosts
  /// Commits the step of which it has told its numbers, with those that another host had when it
  /// committed the step. The open step is dropped, and nothing else may run.
  void commit_with(std::span<const std::byte> numbers);
  /// Takes over the weights and moments of a job with the same tensors. Both rest.
  void take_state(const TrainingJob& from);

  /// Changes values from the next commit on; nothing if there is none. Any thread.
  std::optional<TrainChange> set(const TrainValues& values);

  /// Of the update that commits step `step` (from 0). Any thread.
  double learning_rate(std::int64_t step);

  /// The values that observers see.
  struct Progress {
    std::vector<double> losses, gradient_norms;                    ///< one per committed step
    std::vector<std::pair<std::int64_t, Evaluation>> evaluations;  ///< after which step
    double weight_per_step = 0;                                    ///< target tokens of a step
    std::string weights_xxh3;                                      ///< once finished
  };
  /// Losses since the last call, and the present values of the others. Any thread.
  Progress take_progress();
  const StatePlaces& places() const { return places_; }
  StateGate& gate() { return gate_; }
  const Home* home() const { return home_; }  ///< since admit()
  /// The present weights. Nothing may change them until they are read. Not if hosts divide the
  /// masters.
  std::vector<NamedArray> weights() const { return places_.weights(*home_, nullptr); }
  /// Hands out the weights after the last step: their file and copies, as configured. `remote`: has
  /// what this host lacks, if hosts divide the masters; otherwise `finish` hands them out. Throws
  /// what writing and reading throw.
  void hand_out_weights(RemoteState* remote);
  /// The final weights but constants (is_constant()), if TrialConfig::keep_weights says so and the
  /// trial has finished. Any thread.
  std::vector<NamedTensor> kept_weights() const;

 private:
  void load(const HostCall& call, bool evaluation) const;
  void reduce(const HostCall& call, int layer);
  void add_partials(const HostCall& call, int layer, std::span<const FoldStep::Merge> merges,
                    std::span<const HomeRange> parts) const;
  void write_norms(const HostCall& call, int param) const;
  void take_norms(const HostCall& call);
  void take_numbers(const HostCall& call);
  void keep_numbers(const HostCall& call);
  void take_eval_numbers(const HostCall& call);
  void commit(const HostCall& call);
  void update(const HostCall& call, int weights_buffer);
  void update_part(const HostCall& call, int weights_buffer);
  void take_weights(const HostCall& call, int weights_buffer);
  template <typename What>
  void for_each_param_in(const HostCall& call, int weights_buffer, const What& what) const;
  void update_param(const HostCall& call, int param);
  void update_weights(const HostCall& call, int param) const;
  OpRunner::Keep keep_evaluation(const OpCall& call, OpRunner::Keep keep_loss,
                                 std::shared_ptr<Prediction> prediction);
  void take_prediction(const OpCall& call, const at::Tensor& tensor, Prediction& prediction) const;
  EvaluationSums evaluation_sums() const;
  void finish_evaluation(const HostCall& call);
  void finish();
  void fold_term(const OpCall& call, int layer, int param, const std::byte* term) const;
  template <typename What>
  void for_each_sum(int layer, const What& what) const;
  void merge_sums(const OpCall& call) const;
  void finish_sums(const OpCall& call, std::span<double* const> norms) const;
  void keep_norms(const OpCall& call);
  const ParamSpec& param_of(int layer, std::size_t i) const;
  void initialize_weights(const Home& home) const;
  /// An element of a parameter's master that this host has: the same place in every plan.
  std::byte* master(const Home& home, int param, std::int64_t element) const;
  /// Whether only other hosts have some elements of its master.
  bool lacks_elements(int param) const;
  /// If its layer computes in another type, converts elements of the master for the devices.
  void write_copy(const Home& home, int param, ElementRange elements) const;
  /// The same from values that begin with the first of these elements; also writes what this host
  /// has of the master.
  void write_weights(const Home& home, int param, ElementRange elements,
                     const std::byte* values) const;
  /// An element of the reduced sum of a parameter: in the range of its last use.
  std::byte* sum_at(const HostCall& call, int param, std::int64_t element) const;

  std::shared_ptr<const Model> model_;
  TrialConfig config_;  // `train.changes`: as of the last commit
  std::shared_ptr<const JobPlan> plan_;
  const StatePlaces places_;
  StateGate gate_;
  std::vector<std::int64_t> updated_;  // by parameter of which hosts update parts: its last step
  std::optional<Generation> start_;
  const Home* home_ = nullptr;
  std::int64_t vn_size_;
  std::vector<WeightedSum> losses_, eval_losses_;  // by virtual node, of the open step
  std::vector<std::vector<double>> metric_sums_;   // by sum, then by virtual node
  std::vector<double> squared_norms_;              // by parameter, of gradient sums; frozen: 0
  std::vector<int> words_;                         // by host
  HostCall told_;                                  // the latest exchange of the numbers of a step
  std::vector<std::byte> last_numbers_;            // in shadowed state: of the last commit
  std::vector<NamedArray> handed_out_;             // the final weights, to be hashed
  std::string hash_;                               // of those that can be read only once
  bool keeps_predictions_ = false;
  std::vector<Prediction> predictions_;  // by virtual node of an evaluation
  double gradient_scale_ = 1;            // of the updates that follow the last commit
  std::atomic<bool> failed_to_commit_ = false;
  mutable Mutex mutex_;
  std::vector<NamedTensor> kept_weights_ SPILLWAY_GUARDED_BY(mutex_);
  Progress progress_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<TrainChange> changes_ SPILLWAY_GUARDED_BY(mutex_);
  std::int64_t next_commit_ SPILLWAY_GUARDED_BY(mutex_);
  std::int64_t last_evaluated_ = -1;  // step whose evaluation was added to progress_ last
  std::int64_t steps_noted_ = 0;      // steps whose loss was added to progress_; a device that is
                                      // lost late makes a step commit again
};

}  // namespace spillway
