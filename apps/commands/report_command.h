#pragma once

#include <iosfwd>
#include <string>

#include "apps/terminal/exit_code.h"

namespace spillway {

struct ReportOptions {
  std::string folder;
  std::string file;  ///< empty: report.html in the folder
};

/// `spillway report`: writes an HTML page about a finished or unfinished run. Throws ConfigError if
/// the folder is not a run's, and IoError.
ExitCode report(const ReportOptions& options, std::ostream& out);

}  // namespace spillway
