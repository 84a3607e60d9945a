#pragma once

#include <iosfwd>
#include <string>

#include "apps/exit_code.h"

namespace spillway {

struct ResultsOptions {
  std::string folder;
  bool json = false;  ///< one JSON document instead of tables
};

/// `spillway results`: what `train` printed as the run in a folder ended; of one that goes on or
/// was broken off, what is known. Throws ConfigError for what is no run or a damaged log.
ExitCode results(const ResultsOptions& options, std::ostream& out);

}  // namespace spillway
