#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli.h"
#include "apps/results_command.h"

namespace spillway {

void declare_results(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<ResultsOptions>();
  auto* results = app.add_subcommand("results", "Show the results of a run, also while it goes on");
  results->add_option("folder", options->folder, "Its output_dir")->required()->type_name(kFolder);
  results->add_flag("--json", options->json, "The JSON document of train instead of tables");
  results->footer("Exit codes: 0 done, 2 no run, or a damaged one.");
  results->callback([options, &chosen] {
    chosen = [options](const Output& output) { return spillway::results(*options, output.out); };
  });
}

}  // namespace spillway
