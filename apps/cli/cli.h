#pragma once

#include <functional>
#include <iosfwd>

#include "apps/terminal/exit_code.h"

namespace CLI {
class App;
}

/// Names, arguments and help of the commands. apps/commands implements them.
namespace spillway {

/// Where a command prints.
struct Output {
  std::ostream& out;
  std::ostream& log;                 ///< progress and messages
  int out_file = -1, log_file = -1;  ///< their descriptors; -1: none
};

/// A command with its arguments. Throws what train(), plan() and the others throw.
using Command = std::function<ExitCode(const Output&)>;

/// Adds all subcommands to `app`. Parsing stores the selected one in `chosen`. Both must outlive
/// the command.
void declare_commands(CLI::App& app, Command& chosen);

/// Types of arguments, as shown in help; completion uses them too.
inline constexpr const char* kYamlFile = "FILE.yaml";
inline constexpr const char* kFolder = "DIR";
inline constexpr const char* kOverride = "KEY=VALUE";
inline constexpr const char* kTrial = "TRIAL";

}  // namespace spillway
