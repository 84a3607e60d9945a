#include "apps/cli/program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/terminal/failure.h"
#include "apps/terminal/terminal.h"
#include "core/base/nearest.h"
#include "runs/text/terminal_text.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// Reports why the command failed. With --json it also prints a document, unless the command has
/// already printed its own.
ExitCode fail(const Failure& failure, PassingStream& out, std::ostream& log, bool json) {
  if (!json) {
    out.flush();
  } else if (out.take_back()) {
    out << to_json(failure) << std::flush;
  }
  log << to_text(failure) << std::flush;
  return failure.code;
}

constexpr const char* kFooter =
    R"(Examples:
  spillway plan sweep.yaml                     check whether it fits, predict memory and time
  spillway train sweep.yaml                    train, with progress and tables
  spillway train sweep.yaml train.data_parallel=2 devices='[{memory: 1GiB}, {memory: 1GiB}]'
  spillway results runs/sweep                  show the tables again, also during the run
  spillway report runs/sweep                   write a page with curves and the sweep
  spillway resume runs/sweep                   continue an interrupted or killed run
  spillway doctor                              show this machine's devices, memory, rates

A configuration is one YAML file. It needs at least:
  devices: [{memory: 1GiB}]                    the memory budget of each device
  data: {path: text.txt}                       a file, a folder, or a list of them
All other keys have defaults; the run writes the complete configuration to config.yaml.
To sweep a key, list its values:
  sweep: {parameters: {train.learning_rate: {values: [1e-3, 3e-3]}}}
Errors are reported before anything runs, with their line and the closest valid key.

Outputs, in output_dir (default: runs/NAME):
  events.jsonl            append-only log, one JSON object per event
  results.csv             one line per trial
  trials/NAME/            metrics.csv (one line per step), weights.safetensors, checkpoints/
  plan.json               predicted and actual totals
  trace.json              every op and copy, for https://ui.perfetto.dev
  config.yaml             the complete configuration; reproduces the results bit for bit

Exit codes:
  0 done   1 a trial failed, or a file is damaged   2 usage or configuration error, or a folder
  that cannot be used   3 does not fit   130 interrupted

Run 'spillway COMMAND --help' for the help of a command.)";

/// Reports an unknown command by name, which CLI11 does not.
void require_command(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (word.starts_with('-') || std::ranges::count(names, word) > 0) return;
  std::string problem = fmt::format("unknown command '{}'", word);
  const std::string near = nearest(word, names);
  if (!near.empty()) problem += fmt::format("; did you mean '{}'?", near);
  throw CLI::ExtrasError(problem, CLI::ExitCodes::ExtrasError);
}

/// Prints help or the version; throws UsageError if the arguments are wrong.
Command command_of(const CLI::App& app, const CLI::ParseError& error) {
  std::ostringstream text, ignored;
  if (app.exit(error, text, ignored) == 0) {
    return [text = text.str()](const Output& output) {
      output.out << text;
      return kDone;
    };
  }
  std::string help = "spillway ";
  for (const CLI::App* command : app.get_subcommands()) help += command->get_name() + " ";
  throw UsageError(error.what() + ("; see " + help) + "--help");
}

Command parse(CLI::App& app, int argc, const char* const* argv) {
  Command chosen;
  app.set_version_flag("--version", "spillway " SPILLWAY_VERSION, "Print the version and exit");
  app.require_subcommand(1);
  app.footer(kFooter);
  declare_commands(app, chosen);
  try {
    if (argc > 1) require_command(app, argv[1]);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return command_of(app, error);
  }
  return chosen;
}

}  // namespace

bool asks_for_json(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [](std::string_view word) {
    return word == "--json" || word.starts_with("--json=");
  });
}

ExitCode run_program(int argc, const char* const* argv, const Output& output) {
  using As = PassingStream::As;
  const bool json = asks_for_json(argc, argv);
  PassingStream out(output.out, json ? As::it_is : As::fit_for_terminal);
  PassingStream log(output.log, As::fit_for_terminal);
  log << std::unitbuf;
  fit_tables(out, output.out_file);
  fit_tables(log, output.log_file);
  const Output passing{out, log, output.out_file, output.log_file};
  try {
    CLI::App app("Spillway trains many models, each possibly larger than its device.", "spillway");
    const ExitCode code = parse(app, argc, argv)(passing);
    if (out.flush()) return code;
    throw Error("cannot write all of standard output; is its disk full?");
  } catch (const std::exception& error) {
    return fail(failure_of(error), out, log, json);
  } catch (...) {
    return fail({.kind = "internal", .message = "an exception of an unknown type"}, out, log, json);
  }
}

}  // namespace spillway
