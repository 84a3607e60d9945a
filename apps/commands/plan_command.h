#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "apps/terminal/exit_code.h"

namespace spillway {

struct PlanOptions {
  std::string config_file;
  std::vector<std::string> overrides;  ///< "a.b=c"
  bool json = false;                   ///< one JSON document instead of tables
  bool estimate = false;               ///< no pilot: costs from the layers' shapes
  std::filesystem::path pilot_cache;   ///< where measured costs are kept; empty: nowhere
};

/// `spillway plan`: predicts a run. Measures the layers, then runs the scheduler on a virtual
/// clock; writes nothing to disk but the cache of measured costs. Returns kDoesNotFit if a trial
/// fits no device. Throws ConfigErrors or ConfigError.
ExitCode plan(const PlanOptions& options, std::ostream& out);

}  // namespace spillway
