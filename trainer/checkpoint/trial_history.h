#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/elastic/rungs.h"
#include "spillway/metric.h"
#include "spillway/session_config.h"
#include "spillway/train_config.h"

namespace spillway {

/// Losses, gradient norms and evaluations of a trial. Memory is bounded: it keeps the last `limit`
/// of each, the first loss, and what early stopping compares at rungs.
class TrialHistory {
 public:
  /// `rungs`: of early stopping.
  explicit TrialHistory(std::size_t limit = kMaxHistory, std::optional<Rungs> rungs = {});
  /// Parses the text of to_text(). Throws CorruptData, which names `file`.
  static TrialHistory parse(const std::string& text, const std::string& file,
                            std::size_t limit = kMaxHistory, std::optional<Rungs> rungs = {});
  /// The JSON of history.json (docs/formats.md), without an evaluation after the last step: a trial
  /// that resumes here evaluates again.
  std::string to_text() const;

  /// Adds the next step.
  void add_step(double loss, double gradient_norm);
  /// Adds an evaluation of the weights after `step` steps.
  void add_eval(std::int64_t step, double loss, const Metrics& metrics = {});

  /// Changes that were made while it trained, also for later steps. The text does not have them:
  /// they are a field of the contract.
  void set_changes(std::vector<TrainChange> changes) { changes_ = std::move(changes); }
  void add_change(const TrainChange& change) { changes_.push_back(change); }
  const std::vector<TrainChange>& changes() const { return changes_; }

  /// The trial takes over the state of another one after the last step. The text then has the
  /// evaluation there, which was its own.
  void take() { taken_ = num_steps_; }
  bool has_taken() const { return taken_ == num_steps_; }

  std::int64_t num_steps() const { return num_steps_; }
  /// The number of first steps whose losses and norms are no longer kept.
  std::int64_t num_dropped() const;
  const std::optional<double>& first_loss() const { return first_loss_; }
  std::optional<double> last_loss() const;
  std::optional<double> last_gradient_norm() const;
  std::optional<double> last_eval_loss() const;
  const std::deque<double>& losses() const { return losses_; }
  const std::deque<double>& gradient_norms() const { return gradient_norms_; }
  const std::deque<std::pair<std::int64_t, double>>& eval_losses() const { return eval_losses_; }
  /// Of the same evaluations, if the model has metrics.
  const std::deque<std::pair<std::int64_t, Metrics>>& eval_metrics() const { return eval_metrics_; }
  Metrics last_metrics() const;
  /// The values of a metric (EarlyTerminate::metric_name()) at the rungs up to the last step.
  RungLosses rung_losses(const std::string& metric) const;

 private:
  std::size_t limit_;
  std::optional<Rungs> rungs_;
  std::int64_t num_steps_ = 0;
  std::optional<double> first_loss_;
  std::deque<double> losses_, gradient_norms_;
  std::deque<std::pair<std::int64_t, double>> eval_losses_;
  std::deque<std::pair<std::int64_t, Metrics>> eval_metrics_;
  RungMeans rung_means_;
  RungLosses rung_evals_;
  std::map<std::string, RungLosses> rung_metrics_;
  std::vector<TrainChange> changes_;
  std::int64_t taken_ = -1;  ///< after this step
};

}  // namespace spillway
