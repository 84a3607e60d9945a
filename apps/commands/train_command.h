#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "apps/terminal/exit_code.h"
#include "apps/terminal/signals.h"

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

struct ResumeOptions {
  std::string folder;                  ///< the run's output_dir
  std::vector<std::string> overrides;  ///< "a.b=c", of what changes no bit
  bool retry_failed = false;           ///< trials that failed have not ended
  bool json = false;
  std::filesystem::path pilot_cache;
  int progress_file = -1;
};

/// `spillway resume`: trials of the run in a folder that have ended stay as they are, the others go
/// on from their newest checkpoint that verifies, or begin. Throws as train() does; ConfigError
/// (`checkpoint`) where what is overridden changes bits.
ExitCode resume(const ResumeOptions& options, std::ostream& out, std::ostream& log,
                const Requests& requests);

/// `spillway train`. Writes nothing to disk before all of the configuration holds and every trial
/// fits. A state that is asked for goes to `log`.
/// Throws ConfigErrors or ConfigError, DoesNotFit, IoError.
ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests);

}  // namespace spillway
