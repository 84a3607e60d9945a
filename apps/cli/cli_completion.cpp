#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "apps/cli/cli.h"
#include "apps/cli/completion.h"
#include "runs/config/config.h"

namespace spillway {

void declare_completion(CLI::App& app, Command& chosen) {
  auto shell = std::make_shared<std::string>();
  auto* completion = app.add_subcommand("completion", "Print a completion script for a shell");
  completion->add_option("shell", *shell, "Which shell")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}).description(""))
      ->type_name("bash|zsh");
  completion->footer(
      "Examples:\n"
      "  source <(spillway completion bash)\n"
      "  spillway completion zsh > ~/.zsh/completions/_spillway");
  completion->callback([shell, &app, &chosen] {
    chosen = [shell, &app](const Output& output) {
      const auto keys = config_keys();
      output.out << (*shell == "bash" ? bash_completion(app, keys) : zsh_completion(app, keys));
      return kDone;
    };
  });
  // Hidden: scripts/configuration_page.py makes docs/configuration.md of it.
  app.add_subcommand("configuration-tables")->group("")->callback([&chosen] {
    chosen = [](const Output& output) {
      output.out << reference_tables();
      return kDone;
    };
  });
}

}  // namespace spillway
