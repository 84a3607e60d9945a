#include "apps/commands/train_command.h"

#include <fmt/format.h>

#include <ostream>

#include "apps/commands/follow.h"
#include "apps/commands/resume_command.h"
#include "runs/control/join_training.h"
#include "runs/control/open_training.h"
#include "runs/control/started_hosts.h"
#include "runs/folder/prepare.h"

namespace spillway {
namespace {

/// Trains as another host than host 0, which has the results.
ExitCode join(const std::vector<Trial>& trials, const RunResources& resources, std::ostream& log,
              const Requests& requests) {
  training_begins();
  const RunResult result = join_training(
      trials, resources, [&] { return requests.stop.load(); }, log);
  ExitCode code = kDone;
  for (const TrialResult& trial : result.trials) {
    const bool is_done = trial.state == TrialState::done;
    log << fmt::format("trial {}: {}, {} steps{}{}\n", trial.name, to_string(trial.state),
                       trial.steps, trial.reason.empty() ? "" : ": ", trial.reason);
    if (!is_done) code = requests.stop ? kInterrupted : kTrialFailed;
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
  if (!is_first_host(request)) {
    Findings findings;
    const auto trials = read_trials(request.config_file, request.overrides, findings);
    findings.throw_if_any();
    return join(trials, resources, log, requests);
  }
  auto [folder, run] = open_training(request, resources, log);
  return follow_or_report(run, folder, {out, log, options.json, options.progress_file, requests});
}

ExitCode join(const JoinOptions& options, std::ostream& /*out*/, std::ostream& log,
              const Requests& requests) {
  return join(invited_trials(options.endpoint, options.overrides),
              {options.pilot_cache, options.machine}, log, requests);
}

}  // namespace spillway
