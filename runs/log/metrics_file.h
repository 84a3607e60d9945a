#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runs/log/step_metrics.h"
#include "runs/log/tensorboard_file.h"

namespace spillway {

/// The complete lines of a metrics.csv; none if the file cannot be read. Columns behind `eval_loss`
/// are metrics.
std::vector<StepMetrics> read_metrics(const std::filesystem::path& path);

/// Writes the metrics.csv of one trial: one line per step, in order. It keeps the last line in
/// memory, because an evaluation may still be added to it. If a TensorBoard file is given, it gets
/// the same rows.
class MetricsFile {
 public:
  /// The first flush creates the file or replaces an existing one. `metrics`: the names of those
  /// that have a column.
  explicit MetricsFile(std::filesystem::path path, std::optional<TensorboardFile> board = {},
                       std::vector<std::string> metrics = {});

  /// Adds the row of a step. If the trial has restarted from an earlier step, the row replaces the
  /// existing one of its step and all later rows. Throws IoError.
  void add(const StepMetrics& row);
  /// Adds the evaluation of the weights after the last step; ignores earlier steps.
  void add_eval(std::int64_t step, double loss, Metrics metrics = {});
  /// Resumes the trial after step `last`: restores the steps in `saved` and drops later steps and
  /// the evaluation after `last`. Throws IoError.
  void resume(std::int64_t last, const std::map<std::int64_t, StepMetrics>& saved);
  /// Completes the last line: nothing will be added to it.
  void complete();
  /// The trial has ended: completes the last line.
  void end(TrialState state);
  /// Writes all complete lines. Throws IoError.
  void flush();

 private:
  void rewrite(std::int64_t last, const std::map<std::int64_t, StepMetrics>& saved);

  std::filesystem::path path_;
  std::optional<TensorboardFile> board_;
  std::vector<std::string> metrics_;
  bool is_made_ = false;
  std::string pending_;
  std::optional<StepMetrics> open_;  ///< the last line
  std::int64_t last_ = 0;            ///< step of the line before it
};

}  // namespace spillway
