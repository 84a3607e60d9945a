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

/// Why a command did not work, for people and for programs.
struct Failure {
  /// usage | configuration | in_use | does_not_fit | io | damaged | newer_format | failed |
  /// internal
  std::string kind;
  ExitCode code = kTrialFailed;
  std::string message;
  std::vector<ConfigError> findings;  ///< of kind configuration
};

/// The one place that turns errors into kinds and exit codes.
Failure failure_of(const std::exception& error);

/// Each finding, or else the message, as "spillway: ..." with further lines indented, so that no
/// quoted text can look like a message of its own.
std::string to_text(const Failure& failure);

/// {"error": {"kind", "exit_code", "message", "findings": [{"field", "line", "problem"}]}}.
std::string to_json(const Failure& failure);

}  // namespace spillway
