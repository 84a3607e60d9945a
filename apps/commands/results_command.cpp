#include "apps/commands/results_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "apps/report/report.h"
#include "runs/log/event_log.h"

namespace spillway {
namespace {

/// Why the run is not whole, and how to continue it.
void print_state(std::ostream& out, const RunLog& run, RunState state,
                 const std::filesystem::path& folder) {
  const bool was_stopped = std::ranges::any_of(
      run.trials, [](const TrialLog& trial) { return trial.result.state == TrialState::stopped; });
  if (state == RunState::running) {
    out << fmt::format("\nThis run is still running; above is its state after {:.1f} s\n",
                       run.time_s);
  } else if (state == RunState::unfinished || was_stopped) {
    out << fmt::format(
        "\nThis run was interrupted or killed; above is its state after {:.1f} s\n"
        "Continue with: {}\n",
        run.time_s, resume_command(folder));
  }
}

}  // namespace

ExitCode results(const ResultsOptions& options, std::ostream& out, std::ostream& log) {
  const std::filesystem::path folder(options.folder);
  const auto [logged, state] = read_run_and_state(folder);
  const auto& [run, damage] = logged;
  if (options.json) {
    out << json_report(run, folder, state, options.top);
  } else {
    print_report(out, run, folder, options.top);
    print_state(out, run, state, folder);
  }
  for (const std::string& problem : damage)
    log << fmt::format("spillway: {}: {}\n", (folder / kEventFile).string(), problem);
  if (damage.empty()) return kDone;
  log << fmt::format(
      "spillway: the report skips these lines; 'spillway resume {}' restores them "
      "from the checkpoints\n",
      folder.string());
  return kTrialFailed;
}

}  // namespace spillway
