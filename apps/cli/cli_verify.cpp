#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli/cli.h"
#include "apps/commands/verify_command.h"

namespace spillway {

void declare_verify(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<VerifyOptions>();
  auto* verify = app.add_subcommand("verify", "Check a run's checkpoints, final weights and log");
  verify->add_option("folder", options->folder, "Its output_dir")->required()->type_name(kFolder);
  verify->add_flag("--json", options->json, "A JSON document instead of a table")
      ->disable_flag_override();
  verify->footer(
      "It reads every byte, compares it with its hash, and changes nothing.\n\n"
      "Exit codes: 0 everything is sound, 1 something is damaged or missing, 2 no run.");
  verify->callback([options, &chosen] {
    chosen = [options](const Output& output) { return spillway::verify(*options, output.out); };
  });
}

}  // namespace spillway
