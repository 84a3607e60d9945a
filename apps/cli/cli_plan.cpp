#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli/cli.h"
#include "apps/commands/plan_command.h"
#include "apps/terminal/cache_file.h"

namespace spillway {

void declare_plan(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<PlanOptions>();
  auto* plan = app.add_subcommand("plan", "Say what train would do: cuts, bytes, time");
  plan->add_option("config", options->config_file, "What would be trained")
      ->required()
      ->type_name(kYamlFile);
  plan->add_option("overrides", options->overrides, "Values to replace, as train.data_parallel=2")
      ->type_name(kOverride);
  plan->add_flag("--no-pilot", options->estimate,
                 "Estimate costs from shapes; nothing is measured");
  plan->add_flag("--json", options->json, "One JSON document instead of tables")
      ->disable_flag_override();
  plan->footer(
      "It measures the layers, then runs the scheduler of train on a virtual clock: which trials "
      "fit\n"
      "and the smallest budget that would do, how the models are cut, what takes the room, bytes\n"
      "moved, peaks, time. It writes nothing but the cache of what it measured.\n\n"
      "Examples:\n"
      "  spillway plan sweep.yaml\n"
      "  spillway plan sweep.yaml devices='[{memory: 64MiB}]'\n\n"
      "Exit codes: 0 everything fits, 2 usage or configuration, 3 a trial, or the\n"
      "checkpoints of all on their disk, do not fit.");
  plan->callback([options, &chosen] {
    options->pilot_cache = pilot_cache_file();
    chosen = [options](const Output& output) { return spillway::plan(*options, output.out); };
  });
}

}  // namespace spillway
