#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli/cli.h"
#include "apps/commands/results_command.h"

namespace spillway {

void declare_results(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<ResultsOptions>();
  auto* results = app.add_subcommand("results", "Show the results of a run, also while it goes on");
  results->add_option("folder", options->folder, "Its output_dir")->required()->type_name(kFolder);
  results->add_flag("--json", options->json, "The JSON document of train instead of tables")
      ->disable_flag_override();
  results->footer(
      "It reads events.jsonl alone, so it works while the run goes on and after a crash; then it\n"
      "says so, and numbers that are not known yet are null in the document.\n\n"
      "Examples:\n"
      "  spillway results runs/sweep\n"
      "  spillway results runs/sweep --json | jq .state\n\n"
      "Exit codes: 0 done, 1 lines of the log are damaged and left out, 2 no run.");
  results->callback([options, &chosen] {
    chosen = [options](const Output& output) {
      return spillway::results(*options, output.out, output.log);
    };
  });
}

}  // namespace spillway
