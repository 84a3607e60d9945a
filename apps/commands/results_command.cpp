#include "apps/commands/results_command.h"

#include <filesystem>
#include <ostream>

#include "apps/report/report.h"
#include "runs/log/event_log.h"
#include "runs/text/format.h"
#include "trainer/storage/run_lock.h"

namespace spillway {
namespace {

void print_state(std::ostream& out, const RunLog& run, RunState state) {
  if (state == RunState::ended) return;
  out << "\nThis run "
      << (state == RunState::running ? "goes on" : "was broken off: its log has no end")
      << "; above is its state after " << format_fixed(run.time_s, 1) << " s\n";
}

}  // namespace

ExitCode results(const ResultsOptions& options, std::ostream& out, std::ostream& log) {
  const std::filesystem::path folder(options.folder);
  // First whether it goes on: it may end as it is read.
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
    log << "spillway: " << (folder / kEventFile).string() << ": " << problem << "\n";
  if (damage.empty()) return kDone;
  log << "spillway: these lines are left out above; 'spillway resume " << folder.string()
      << "' restores what checkpoints know\n";
  return kTrialFailed;
}

}  // namespace spillway
