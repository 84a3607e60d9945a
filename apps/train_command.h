#pragma once

#include <atomic>
#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "apps/exit_code.h"

namespace spillway {

struct TrainOptions {
  std::string config_file;
  std::vector<std::string> overrides;  ///< "a.b=c"
  bool json = false;                   ///< one JSON document on `out`, everything else on `log`
  bool overwrite = false;              ///< replace the outputs of an earlier run
  std::filesystem::path pilot_cache;   ///< where measured costs are kept; empty: nowhere
  /// Behind the stream that shows progress; drawn in place where it is a terminal.
  int progress_file = -1;
};

/// `spillway train`. Writes nothing to disk before all of the configuration holds and every trial
/// fits. Once `interrupted` is set, trials end after their running ops.
/// Throws ConfigErrors or ConfigError, DoesNotFit, IoError.
ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const std::atomic<bool>& interrupted);

}  // namespace spillway
