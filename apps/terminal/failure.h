#pragma once

#include <exception>
#include <string>
#include <vector>

#include "apps/terminal/exit_code.h"
#include "spillway/error.h"

namespace spillway {

/// The arguments of the program are wrong.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Why a command failed, for people and for programs.
struct Failure {
  /// usage | configuration | in_use | does_not_fit | io | damaged | newer_format | failed |
  /// internal
  std::string kind;
  ExitCode code = kTrialFailed;
  std::string message;
  std::vector<ConfigError> findings;  ///< of kind configuration
};

/// The only place that maps errors to kinds and exit codes.
Failure failure_of(const std::exception& error);

/// Each finding, or else the message, as "spillway: ...". Indents further lines, so that quoted
/// text cannot look like a message of its own.
std::string to_text(const Failure& failure);

/// {"error": {"kind", "exit_code", "message", "findings": [{"field", "line", "problem"}]}}.
std::string to_json(const Failure& failure);

}  // namespace spillway
