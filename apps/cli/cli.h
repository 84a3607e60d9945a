#pragma once

#include <functional>
#include <iosfwd>

#include "apps/terminal/exit_code.h"

namespace CLI {
class App;
}

/// The commands as the command line knows them: names, arguments, help. What they do is elsewhere.
namespace spillway {

/// Where a command prints.
struct Output {
  std::ostream& out;
  std::ostream& log;                 ///< what is no result
  int out_file = -1, log_file = -1;  ///< descriptors behind them; -1: none
};

/// A command with its arguments. Throws as train(), plan() and the others do.
using Command = std::function<ExitCode(const Output&)>;

/// Each adds one subcommand, which puts itself into `chosen` where it is the one asked for.
/// `app` and `chosen` outlive the parse.
void declare_train(CLI::App& app, Command& chosen);
void declare_resume(CLI::App& app, Command& chosen);
void declare_verify(CLI::App& app, Command& chosen);
void declare_plan(CLI::App& app, Command& chosen);
void declare_results(CLI::App& app, Command& chosen);
void declare_doctor(CLI::App& app, Command& chosen);
void declare_completion(CLI::App& app, Command& chosen);

/// How arguments are named in help; completion knows what to offer for each.
inline constexpr const char* kYamlFile = "FILE.yaml";
inline constexpr const char* kFolder = "DIR";
inline constexpr const char* kOverride = "KEY=VALUE";

}  // namespace spillway
