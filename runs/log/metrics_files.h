#pragma once

#include <filesystem>
#include <vector>

#include "runs/log/metrics_file.h"
#include "runs/log/run_json.h"

namespace spillway {

/// trials/NAME/metrics.csv of all trials of a run, written while it goes on: they follow from the
/// run's events alone.
class MetricsFiles {
 public:
  /// Writes them anew from what the event log in the run's folder says until now, whatever is
  /// there. Lines of the log that cannot be read do not count. Throws IoError.
  explicit MetricsFiles(std::filesystem::path folder);

  /// The next event of the log, which RunLog has taken. Throws IoError.
  void take(const Json& event);
  /// Throws IoError.
  void flush();

 private:
  void take_of_trial(const std::string& kind, const Json& event, MetricsFile& file);

  std::filesystem::path folder_;
  std::vector<MetricsFile> files_;  // by trial
};

}  // namespace spillway
