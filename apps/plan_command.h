#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/exit_code.h"

namespace spillway {

struct PlanOptions {
  std::string config_file;
  std::vector<std::string> overrides;  ///< "a.b=c"
  bool json = false;                   ///< one JSON document instead of tables
};

/// `spillway plan`: what `train` would do, predicted. Measures the layers, then runs the scheduler
/// on a virtual clock; writes nothing to disk. kDoesNotFit where a trial fits no device.
/// Throws ConfigErrors or ConfigError.
ExitCode plan(const PlanOptions& options, std::ostream& out);

}  // namespace spillway
