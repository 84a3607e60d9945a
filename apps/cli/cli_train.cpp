#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli/cli.h"
#include "apps/commands/train_command.h"
#include "apps/terminal/cache_file.h"
#include "apps/terminal/signals.h"

namespace spillway {

void declare_train(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<TrainOptions>();
  auto* train = app.add_subcommand("train", "Train the trials of a configuration");
  train->add_option("config", options->config_file, "What to train")
      ->required()
      ->type_name(kYamlFile);
  train->add_option("overrides", options->overrides, "Values to replace, as train.data_parallel=2")
      ->type_name(kOverride);
  train->add_flag("--json", options->json, "One JSON document on stdout, progress on stderr")
      ->disable_flag_override();
  train->add_flag("--overwrite", options->overwrite, "Replace the outputs of an earlier run");
  train->footer(
      "Before it trains, it measures the layers, cuts each model under the budgets, and simulates\n"
      "the run. Ctrl-C, SIGTERM and SIGHUP save a checkpoint of each trial and end the run, with\n"
      "results; a second Ctrl-C ends it at once.\n"
      "SIGUSR1 prints on stderr what every device, trial and copy does (kill -USR1 PID).\n\n"
      "Examples:\n"
      "  spillway train sweep.yaml --overwrite\n"
      "  spillway train sweep.yaml output_dir=/tmp/run train.max_steps=10\n"
      "  spillway train sweep.yaml --json 2>/dev/null | jq '.trials[].eval_loss'\n\n"
      "Outputs: events.jsonl, results.csv, plan.json, trace.json, config.yaml, and for each trial\n"
      "metrics.csv and weights.safetensors, in output_dir (runs/NAME unless given).\n\n"
      "Exit codes: 0 done, 1 a trial failed, 2 usage or configuration, 3 does not fit,\n"
      "130 interrupted.");
  train->callback([options, &chosen] {
    options->pilot_cache = pilot_cache_file();
    chosen = [options](const Output& output) {
      options->progress_file = options->json ? output.log_file : output.out_file;
      return spillway::train(*options, output.out, output.log, requests_by_signals());
    };
  });
}

}  // namespace spillway
