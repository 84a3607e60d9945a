#include "apps/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <new>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/findings.h"
#include "core/error.h"
#include "core/nearest.h"

namespace spillway {
namespace {

ExitCode fail(ExitCode code, const std::exception& error, std::ostream& log) {
  log << "spillway: " << error.what() << std::endl;
  return code;
}

ExitCode run(const Command& command, const Output& output) {
  try {
    const ExitCode code = command(output);
    if (output.out.flush()) return code;
    throw Error("standard output took not all that was written to it: is its disk full?");
  } catch (const DoesNotFit& error) {
    return fail(kDoesNotFit, error, output.log);
  } catch (const ConfigError& error) {
    return fail(kUsage, error, output.log);
  } catch (const std::bad_alloc&) {
    const Error error("this machine has no memory left; use smaller budgets or virtual nodes");
    return fail(kDoesNotFit, error, output.log);
  } catch (const std::exception& error) {
    return fail(kTrialFailed, error, output.log);
  }
}

constexpr const char* kFooter =
    R"(Examples:
  spillway plan sweep.yaml                     does it fit, what would it take
  spillway train sweep.yaml                    train, with progress and tables
  spillway train sweep.yaml train.lanes=2 devices='[{memory: 1GiB}, {memory: 1GiB}]'
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
  0 done   1 a trial failed   2 usage or configuration   3 does not fit   130 interrupted

Each command has a --help of its own.)";

/// A first word that is no command, which CLI11 would not name.
void require_command(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (word.starts_with('-') || std::ranges::count(names, word) > 0) return;
  std::string problem = "there is no command '" + std::string(word) + "'";
  const std::string near = nearest(word, names);
  if (!near.empty()) problem += "; did you mean '" + near + "'?";
  throw CLI::ExtrasError(problem + "; spillway --help names all", CLI::ExitCodes::ExtrasError);
}

}  // namespace

ExitCode run_program(int argc, const char* const* argv, const Output& output) {
  CLI::App app("Spillway trains many models, each possibly larger than its device.", "spillway");
  app.require_subcommand(1);
  app.footer(kFooter);
  Command chosen;
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
    return app.exit(error, output.out, output.log) == 0 ? kDone : kUsage;
  }
  return run(chosen, output);
}

}  // namespace spillway
