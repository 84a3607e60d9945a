#include "apps/commands/resume_command.h"

#include <ostream>
#include <utility>

#include "apps/commands/trial_commands.h"
#include "runs/control/join_training.h"
#include "runs/control/open_training.h"
#include "runs/log/event_log.h"

namespace spillway {
namespace {

ExitCode report_ended(const OutputFolder& folder, const Console& console) {
  const RunLog run = read_log(folder.path()).run;
  const ExitCode code = exit_code(run, false);
  if (!report_paused(run, folder, console.log)) {
    console.log << "all trials of this run have ended"
                << (code == kTrialFailed ? "; --retry-failed resumes those that failed\n" : "\n");
  }
  print(run, folder, console);
  return code;
}

}  // namespace

ExitCode follow_or_report(std::optional<OpenRun> run, const OutputFolder& folder,
                          const RunResources& resources, const Console& console,
                          const std::optional<Json>& request) {
  if (!run) return report_ended(folder, console);
  const std::optional<ExitCode> code = follow(*run, folder, console, request);
  const std::optional<HostsConfig> hosts = run->session->next_hosts();
  std::vector<Trial> all = std::move(run->all);
  run.reset();  // its session ends
  if (code) {
    if (hosts) folder.lock().end_in_order();  // so that no other host goes on
    return *code;
  }
  for (Trial& trial : all) trial.config.session.hosts = *hosts;
  console.log << next_host_text(*hosts) << std::flush;
  return resume_and_follow(std::move(all), {}, folder, resources, {}, console);
}

ExitCode resume_and_follow(std::vector<Trial> all, Findings findings, const OutputFolder& folder,
                           const RunResources& resources, const ResumeWish& wish,
                           const Console& console) {
  auto run = resume_run(std::move(all), std::move(findings), folder, resources, wish, console.log);
  return follow_or_report(std::move(run), folder, resources, console, wish.request);
}

ExitCode resume(const OutputFolder& folder, const ResumeOptions& options, const ResumeWish& wish,
                const Console& console) {
  const RunResources resources{options.pilot_cache, options.machine};
  auto run = reopen_training(folder, options.overrides, wish, resources, console.log);
  return follow_or_report(std::move(run), folder, resources, console, wish.request);
}

ExitCode resume(const ResumeOptions& options, std::ostream& out, std::ostream& log,
                const Requests& requests) {
  const OutputFolder folder(options.folder);
  require_begun(folder);
  ResumeWish wish{.retry_failed = options.retry_failed};
  if (!options.trial.empty()) {
    wish.call = CallForTrial{TrialCall::none, options.trial, {}};
    if (ask(folder, request_of(*wish.call), out)) return kDone;
  }
  return resume(folder, options, wish, {out, log, options.json, options.progress_file, requests});
}

}  // namespace spillway
