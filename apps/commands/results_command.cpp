#include "apps/commands/results_command.h"

#include <fmt/format.h>

#include <filesystem>
#include <ostream>

#include "apps/report/report.h"
#include "runs/log/event_log.h"
#include "trainer/storage/run_lock.h"

namespace spillway {
namespace {

void print_state(std::ostream& out, const RunLog& run, RunState state) {
  if (state == RunState::ended) return;
  out << fmt::format("\nThis run {}; above is its state after {:.1f} s\n",
                     state == RunState::running ? "is still running" : "was interrupted or killed",
                     run.time_s);
}

}  // namespace

ExitCode results(const ResultsOptions& options, std::ostream& out, std::ostream& log) {
  const std::filesystem::path folder(options.folder);
  // Checked first: the run may end while its log is read.
  const bool live = holder_of(folder).has_value();
  const auto [run, damage] = read_run(folder);
  const auto state = run.actual ? RunState::ended : live ? RunState::running : RunState::unfinished;
  if (options.json) {
    out << json_report(run, state);
  } else {
    print_report(out, run, folder);
    print_state(out, run, state);
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
