#include "apps/commands/train_command.h"

#include <fmt/format.h>

#include <functional>
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

/// These are hosts of a run that goes on.
std::vector<std::string> overrides_of(const HostsConfig& next) {
  return {fmt::format("hosts.size={}", next.size), fmt::format("hosts.number={}", next.number),
          fmt::format("hosts.start_size={}", next.start_size), "hosts.endpoint=" + next.endpoint};
}

/// Trains as another host than host 0, which has the results. `succeed`: goes on as host 0 once
/// that is lost, with overrides of the configuration.
ExitCode join(std::vector<Trial> trials, const RunResources& resources, std::ostream& log,
              const Requests& requests,
              const std::function<ExitCode(const std::vector<std::string>&)>& succeed) {
  training_begins();
  const auto wants_stop = [&] { return requests.stop.load(); };
  JoinedTraining joined = join_training(trials, resources, wants_stop, log);
  while (joined.next && !requests.stop) {
    HostsConfig& hosts = trials.front().config.session.hosts;
    hosts = *joined.next;
    log << fmt::format("host 0 is lost; this host goes on as host {} of {}\n", hosts.number,
                       hosts.size)
        << std::flush;
    if (hosts.number == 0) return succeed(overrides_of(hosts));
    joined = join_training(trials, resources, wants_stop, log);
  }
  ExitCode code = kDone;
  for (const TrialResult& trial : joined.result.trials) {
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
  const auto train_as_first = [&] {
    auto [folder, run] = open_training(request, resources, log);
    return follow_or_report(run, folder, {out, log, options.json, options.progress_file, requests});
  };
  if (is_first_host(request)) return train_as_first();
  Findings findings;
  auto trials = read_trials(request.config_file, request.overrides, findings);
  findings.throw_if_any();
  return join(std::move(trials), resources, log, requests, [&](const auto& overrides) {
    request.overrides.insert(request.overrides.end(), overrides.begin(), overrides.end());
    request.overrides.emplace_back("resume=auto");
    request.overwrite = false;
    return train_as_first();
  });
}

ExitCode join(const JoinOptions& options, std::ostream& out, std::ostream& log,
              const Requests& requests) {
  const RunResources resources{options.pilot_cache, options.machine};
  auto trials = invited_trials(options.endpoint, options.overrides);
  const OutputFolder folder(trials.front().config.output_dir);
  return join(std::move(trials), resources, log, requests, [&](const auto& overrides) {
    auto all = options.overrides;
    all.insert(all.end(), overrides.begin(), overrides.end());
    auto run = reopen_training(folder, all, {}, resources, log);
    return follow_or_report(run, folder, {out, log, options.json, options.progress_file, requests});
  });
}

}  // namespace spillway
