#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <iostream>

#include "apps/findings.h"
#include "apps/plan_command.h"
#include "apps/train_command.h"
#include "core/error.h"

namespace {

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

/// The first signal asks for the end, a second one ends the process.
void stop_on_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int fail(spillway::ExitCode code, const std::exception& error) {
  std::cerr << "spillway: " << error.what() << std::endl;
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Spillway trains many models, each possibly larger than its device.", "spillway");
  app.require_subcommand(1);
  spillway::TrainOptions options;
  auto* train = app.add_subcommand("train", "Train the trials of a configuration");
  train->add_option("config", options.config_file, "YAML file")->required();
  train->add_option("overrides", options.overrides, "Values to replace, as a.b=c");
  train->add_flag("--json", options.json, "One JSON document on stdout, progress on stderr");
  train->add_flag("--overwrite", options.overwrite, "Replace the outputs of an earlier run");
  train->footer(
      "Exit codes: 0 done, 1 a trial failed, 2 usage or configuration, 3 does not fit,\n"
      "130 interrupted.");
  spillway::PlanOptions plan_options;
  auto* plan = app.add_subcommand("plan", "Say what train would do: cuts, bytes, time");
  plan->add_option("config", plan_options.config_file, "YAML file")->required();
  plan->add_option("overrides", plan_options.overrides, "Values to replace, as a.b=c");
  plan->add_flag("--json", plan_options.json, "One JSON document instead of tables");
  plan->footer("Exit codes: 0 everything fits, 2 usage or configuration, 3 a trial does not fit.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? spillway::kDone : spillway::kUsage;
  }
  try {
    if (plan->parsed()) return spillway::plan(plan_options, std::cout);
    stop_on_signals();
    return spillway::train(options, std::cout, std::cerr, interrupted);
  } catch (const spillway::DoesNotFit& error) {
    return fail(spillway::kDoesNotFit, error);
  } catch (const spillway::ConfigError& error) {
    return fail(spillway::kUsage, error);
  } catch (const spillway::ConfigErrors& error) {
    return fail(spillway::kUsage, error);
  } catch (const std::exception& error) {
    return fail(spillway::kTrialFailed, error);
  }
}
