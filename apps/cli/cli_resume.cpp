#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli/cli.h"
#include "apps/commands/train_command.h"
#include "apps/terminal/cache_file.h"
#include "apps/terminal/signals.h"

namespace spillway {

void declare_resume(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<ResumeOptions>();
  auto* resume = app.add_subcommand("resume", "Go on with a run that was interrupted or killed");
  resume->add_option("folder", options->folder, "Its output_dir")->required()->type_name(kFolder);
  resume->add_option("overrides", options->overrides, "Values to replace, as train.data_parallel=2")
      ->type_name(kOverride);
  resume->add_flag("--retry-failed", options->retry_failed, "Take up trials that failed, too");
  resume->add_flag("--json", options->json, "One JSON document on stdout, progress on stderr")
      ->disable_flag_override();
  resume->footer(
      "Trials that have ended stay as they are. The others go on from their newest checkpoint "
      "that\n"
      "verifies, those without one from the beginning, and end with the bits that they would have\n"
      "had. Devices, budgets and whatever else changes no bit may be replaced; data and paths are\n"
      "those of config.yaml in the folder. Signals are taken as by train.\n\n"
      "A trial that failed has ended. Where a full disk or a lost device was the cause, and has "
      "been\n"
      "seen to, --retry-failed goes on with it.\n\n"
      "Examples:\n"
      "  spillway resume runs/sweep\n"
      "  spillway resume runs/sweep devices='[{memory: 4GiB}]'\n"
      "  spillway resume runs/sweep --retry-failed\n\n"
      "Exit codes: as of train; 2 also where a checkpoint is of another contract.");
  resume->callback([options, &chosen] {
    options->pilot_cache = pilot_cache_file();
    chosen = [options](const Output& output) {
      options->progress_file = options->json ? output.log_file : output.out_file;
      return spillway::resume(*options, output.out, output.log, requests_by_signals());
    };
  });
}

}  // namespace spillway
