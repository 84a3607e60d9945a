#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace spillway {

/// The metrics of a committed step. An evaluation belongs to the step whose weights it used.
struct StepMetrics {
  std::int64_t step = 0;
  std::optional<double> loss, learning_rate, gradient_norm, tokens_per_s, time_s, eval_loss;
};

/// Writes the metrics.csv of one trial: one line per step, in order. It keeps the last line in
/// memory, because an evaluation may still be added to it.
class MetricsFile {
 public:
  /// The first flush creates the file or replaces an existing one.
  explicit MetricsFile(std::filesystem::path path);

  /// Adds the row of a step. If the trial has restarted from an earlier step, the row replaces the
  /// existing one of its step and all later rows. Throws IoError.
  void add(const StepMetrics& row);
  /// Adds the evaluation of the weights after the last step; ignores earlier steps.
  void add_eval(std::int64_t step, double loss);
  /// Resumes the trial after step `last`: restores the steps in `saved` and drops later steps and
  /// the evaluation after `last`. Throws IoError.
  void resume(std::int64_t last, const std::map<std::int64_t, StepMetrics>& saved);
  /// Completes the last line: nothing will be added to it.
  void complete();
  /// Writes all complete lines. Throws IoError.
  void flush();

 private:
  void rewrite(std::int64_t last, const std::map<std::int64_t, StepMetrics>& saved);

  std::filesystem::path path_;
  bool is_made_ = false;
  std::string pending_;
  std::optional<StepMetrics> open_;  ///< the last line
  std::int64_t last_ = 0;            ///< step of the line before it
};

}  // namespace spillway
