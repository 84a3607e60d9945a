#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli.h"
#include "apps/verify_command.h"

namespace spillway {

void declare_verify(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<VerifyOptions>();
  auto* verify = app.add_subcommand("verify", "Read every byte of a run's checkpoints");
  verify->add_option("folder", options->folder, "Its output_dir")->required()->type_name(kFolder);
  verify->add_flag("--json", options->json, "A JSON document instead of a table");
  verify->footer(
      "It compares each block with its hash and changes nothing.\n\n"
      "Exit codes: 0 all are sound, 1 one is damaged, 2 no run.");
  verify->callback([options, &chosen] {
    chosen = [options](const Output& output) { return spillway::verify(*options, output.out); };
  });
}

}  // namespace spillway
