#include <CLI/CLI.hpp>
#include <memory>

#include "apps/cli/cli.h"
#include "apps/commands/doctor_command.h"

namespace spillway {

void declare_doctor(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<DoctorOptions>();
  auto* doctor = app.add_subcommand("doctor", "Show versions, devices, memory and measured rates");
  doctor->add_flag("--json", options->json, "One JSON document instead of text")
      ->disable_flag_override();
  doctor->footer("It takes about a second. Exit code: 0.");
  doctor->callback([options, &chosen] {
    chosen = [options](const Output& output) { return spillway::doctor(*options, output.out); };
  });
}

}  // namespace spillway
