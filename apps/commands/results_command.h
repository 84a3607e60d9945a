#pragma once

#include <iosfwd>
#include <string>

#include "apps/terminal/exit_code.h"

namespace spillway {

struct ResultsOptions {
  std::string folder;
  bool json = false;  ///< one JSON document instead of tables
};

/// `spillway results`: what `train` printed as the run in a folder ended; of one that goes on or
/// was broken off, what is known. Damaged lines of its log are named on `log`; then kTrialFailed.
/// Throws ConfigError for what is no run.
ExitCode results(const ResultsOptions& options, std::ostream& out, std::ostream& log);

}  // namespace spillway
