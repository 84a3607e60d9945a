#pragma once

#include <iosfwd>
#include <string>

#include "apps/terminal/exit_code.h"

namespace spillway {

struct VerifyOptions {
  std::string folder;
  bool json = false;  ///< one JSON document instead of a table
};

/// `spillway verify`: reads every byte of a run's checkpoints, final weights and log, and changes
/// nothing. Returns kTrialFailed if one is damaged or missing. Throws ConfigError if the folder is
/// not a run's.
ExitCode verify(const VerifyOptions& options, std::ostream& out);

}  // namespace spillway
