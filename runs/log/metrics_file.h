#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace spillway {

/// What is known of a committed step; an evaluation belongs to the step whose weights it saw.
struct StepMetrics {
  std::int64_t step = 0;
  std::optional<double> loss, learning_rate, gradient_norm, tokens_per_s, time_s, eval_loss;
};

/// metrics.csv of one trial while it is written: a line a step, in the order of steps. The last
/// line is in memory, because an evaluation may still be added to it.
class MetricsFile {
 public:
  /// The file is made, in place of one that is there, with the first flush.
  explicit MetricsFile(std::filesystem::path path);

  /// The row of the next step. One of a step that there is already takes its place, and that of all
  /// later ones: the trial began again before it. Throws IoError.
  void add(const StepMetrics& row);
  /// Of the weights after the last step; of an earlier one it counts for nothing.
  void add_eval(std::int64_t step, double loss);
  /// What the trial has said up to `last` is what stands here and, of the steps in `said`, what is
  /// said there. Later steps, and the evaluation after `last`, are still to come. Throws IoError.
  void resume(std::int64_t last, const std::map<std::int64_t, StepMetrics>& said);
  /// Nothing will be added to the last line.
  void complete();
  /// Writes all lines but the last, unless that is complete. Throws IoError.
  void flush();

 private:
  void rewrite(std::int64_t last, const std::map<std::int64_t, StepMetrics>& said);

  std::filesystem::path path_;
  bool is_made_ = false;
  std::string pending_;
  std::optional<StepMetrics> open_;  ///< the last line
  std::int64_t last_ = 0;            ///< step of the last line before it
};

}  // namespace spillway
