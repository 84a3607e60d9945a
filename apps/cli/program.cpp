#include "apps/cli/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/terminal/failure.h"
#include "core/base/nearest.h"
#include "runs/text/terminal_text.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// Says why the command did not work. With --json, standard output gets a document of it, unless
/// the command's own is there already.
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
  spillway plan sweep.yaml                     does it fit, what would it take
  spillway train sweep.yaml                    train, with progress and tables
  spillway train sweep.yaml train.data_parallel=2 devices='[{memory: 1GiB}, {memory: 1GiB}]'
  spillway results runs/sweep                  the same tables later, or meanwhile
  spillway resume runs/sweep                   go on with what was interrupted or killed
  spillway doctor                              this machine: devices, memory, rates

A configuration is one YAML file. The least that it needs:
  devices: [{memory: 1GiB}]                    the most bytes each may ever hold
  data: {path: text.txt}                       a file, a folder, a list of them
Every other key has a default; the run writes all of them into config.yaml.
To sweep a key, list its values:
  sweep: {parameters: {train.learning_rate: {values: [1e-3, 3e-3]}}}
What is wrong is said before anything runs, with the line and the nearest key.

Outputs, in output_dir (runs/NAME unless given):
  events.jsonl            all that happened, a line an event, as it happens
  results.csv             a line a trial
  trials/NAME/            metrics.csv, a line a step; weights.safetensors; checkpoints/
  plan.json               what was predicted beside what came
  trace.json              every op and copy, for https://ui.perfetto.dev
  config.yaml             the whole configuration; it gives the same bits again

Exit codes:
  0 done   1 a trial failed, or something is damaged   2 usage, configuration, or a folder
  that cannot be used   3 does not fit   130 interrupted

Each command has a --help of its own.)";

/// A first word that is no command, which CLI11 would not name.
void require_command(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (word.starts_with('-') || std::ranges::count(names, word) > 0) return;
  std::string problem = "there is no command '" + std::string(word) + "'";
  const std::string near = nearest(word, names);
  if (!near.empty()) problem += "; did you mean '" + near + "'?";
  throw CLI::ExtrasError(problem, CLI::ExitCodes::ExtrasError);
}

/// What CLI11 has to say: help, the version, or what is wrong with the arguments.
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
  declare_train(app, chosen);
  declare_resume(app, chosen);
  declare_plan(app, chosen);
  declare_results(app, chosen);
  declare_verify(app, chosen);
  declare_doctor(app, chosen);
  declare_completion(app, chosen);
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
