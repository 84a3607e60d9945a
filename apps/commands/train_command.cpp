#include "apps/commands/train_command.h"

#include <fmt/format.h>

#include <ostream>
#include <utility>

#include "apps/commands/follow.h"
#include "apps/commands/resume_command.h"
#include "runs/control/join_training.h"
#include "runs/control/open_training.h"
#include "runs/control/started_hosts.h"
#include "runs/folder/prepare.h"

namespace spillway {
namespace {

/// Until hosts meet again, or to the end.
JoinedTraining train_with_others(const std::vector<Trial>& trials, const RunResources& resources,
                                 const Console& console) {
  const auto wants_stop = [&] {
    training_begins();  // it is asked while trials train
    return console.requests.stop.load();
  };
  JoinedTraining joined = join_training(trials, resources, wants_stop, console.log);
  training_ends();
  return joined;
}

/// Trains as another host than host 0, which has the results. Goes on when hosts meet again,
/// perhaps as host 0.
ExitCode join(std::vector<Trial> trials, const RunResources& resources, const Console& console) {
  JoinedTraining joined = train_with_others(trials, resources, console);
  while (joined.next && !console.requests.stop) {
    for (Trial& trial : trials) trial.config.session.hosts = *joined.next;
    console.log << next_host_text(*joined.next) << std::flush;
    if (joined.next->number == 0) {
      const OutputFolder folder(trials.front().config.output_dir);
      take_run_of_host_0(folder, *joined.next);
      return resume_and_follow(std::move(trials), {}, folder, resources, {}, console);
    }
    joined = train_with_others(trials, resources, console);
  }
  ExitCode code = kDone;
  for (const TrialResult& trial : joined.result.trials) {
    const bool is_done = trial.state == TrialState::done;
    console.log << fmt::format("trial {}: {}, {} steps{}{}\n", trial.name, to_string(trial.state),
                               trial.steps, trial.reason.empty() ? "" : ": ", trial.reason);
    if (!is_done) code = console.requests.stop ? kInterrupted : kTrialFailed;
  }
  return code;
}

bool is_first_host(const TrainingRequest& request) {
  const Trial first = read_first_trial(request.config_file, request.overrides);
  return first.config.session.hosts.number == 0;
}

}  // namespace

ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests) {
  TrainingRequest request{options.config_file, overrides_of_started_host(), options.overwrite};
  request.overrides.insert(request.overrides.end(), options.overrides.begin(),
                           options.overrides.end());
  const RunResources resources{options.pilot_cache, options.machine};
  const Console console{out, log, options.json, options.progress_file, requests};
  if (!is_first_host(request)) {
    Findings findings;
    auto trials = read_trials(request.config_file, request.overrides, findings);
    findings.throw_if_any();
    return join(std::move(trials), resources, console);
  }
  auto [folder, run] = open_training(request, resources, log);
  return follow_or_report(std::move(run), folder, resources, console);
}

ExitCode join(const JoinOptions& options, std::ostream& out, std::ostream& log,
              const Requests& requests) {
  return join(invited_trials(options.endpoint, options.overrides),
              {options.pilot_cache, options.machine},
              {out, log, options.json, options.progress_file, requests});
}

}  // namespace spillway
