#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "runs/log/metrics_file.h"
#include "runs/log/run_json.h"

namespace spillway {

/// Writes trials/NAME/metrics.csv of all trials during a run, from the run's events alone.
class MetricsFiles {
 public:
  /// Rewrites the files from the event log in the run's folder, skipping damaged lines.
  /// `tensorboard_s`: the Unix time at which the run's clock was 0; if given, event files of
  /// TensorBoard are written too. Throws IoError.
  explicit MetricsFiles(std::filesystem::path folder, std::optional<double> tensorboard_s = {});

  /// Takes the next event of the log, which RunLog has applied. Throws IoError.
  void take(const Json& event);
  /// Throws IoError.
  void flush();

 private:
  MetricsFile file_of(const Json& trial) const;
  void take_of_trial(const std::string& kind, const Json& event, MetricsFile& file);

  std::filesystem::path folder_;
  std::optional<double> tensorboard_s_;
  std::vector<MetricsFile> files_;  // by trial
};

}  // namespace spillway
