#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>

#include "apps/report/report.h"
#include "apps/terminal/exit_code.h"

namespace spillway {

struct ResultsOptions {
  std::string folder;
  std::size_t top = kAllTrials;  ///< how many trials to show, the best first
  bool json = false;             ///< one JSON document instead of tables
};

/// `spillway results`: prints the report of a finished or unfinished run. Lists damaged lines of
/// its log on `log` and then returns kTrialFailed. Throws ConfigError if the folder is not a run's.
ExitCode results(const ResultsOptions& options, std::ostream& out, std::ostream& log);

}  // namespace spillway
