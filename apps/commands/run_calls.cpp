#include "apps/commands/run_calls.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>
#include <utility>

#include "runs/folder/growth.h"
#include "runs/folder/prepare.h"
#include "runs/log/event_json.h"
#include "spillway/error.h"

namespace spillway {

RunCalls::RunCalls(Session& session, std::vector<Trial>& trials, Place& place,
                   const OutputFolder& folder, EventLog& log, MetricsFiles& metrics,
                   std::ostream& problems)
    : session_(session),
      trials_(trials),
      place_(place),
      folder_(folder),
      log_(log),
      metrics_(metrics),
      problems_(problems) {}

/// The latest, if it takes part in this session.
std::optional<JobId> RunCalls::job_of(std::size_t number) const {
  for (std::size_t j = place_.trials.size(); j-- > 0;) {
    if (place_.trials[j] == number) return JobId(j);
  }
  return std::nullopt;
}

bool RunCalls::is_live(std::size_t number) const {
  const auto job = job_of(number);
  return job && !has_ended(session_.result().trials[job->index()].state);
}

bool RunCalls::take_may_go_on() { return std::exchange(may_go_on_, false); }

std::string RunCalls::answer(const Json& request) {
  if (!request.is_object()) throw Error("the request is damaged");
  if (request.value("call", "") != "add") return answer_call(request);
  return answer_add(request.value("values", std::vector<std::string>{}));
}

std::string RunCalls::answer_call(const Json& request) {
  const CallForTrial call = call_of(request);
  const Json event = event_of(call, log_.run());
  const std::size_t number = event.at("trial");
  const std::string name = log_.run().trials[number].result.name;
  if (call.call == TrialCall::extend) return extend(event);
  const bool live = is_live(number);
  if (call.call == TrialCall::none && !live) {
    throw Error(
        fmt::format("trial '{}' takes no part in this run any more; once the run has ended, "
                    "'spillway resume {} --trial' resumes it",
                    name, folder_.path().string()));
  }
  log_.add(event);
  log_.sync();
  switch (call.call) {
    case TrialCall::stop:
      if (live) session_.stop(*job_of(number));
      return fmt::format("trial {} ends after its open step", name);
    case TrialCall::pause:
      if (live) session_.pause(*job_of(number));
      return fmt::format("trial {} pauses after its open step", name);
    case TrialCall::none:
    case TrialCall::extend:
      break;
  }
  session_.resume(*job_of(number));
  may_go_on_ = true;
  return fmt::format("trial {} goes on", name);
}

/// A trial of the log, as this session has it, else as the folder does.
Trial RunCalls::trial_of(std::size_t number) const {
  if (const auto job = job_of(number)) return trials_[job->index()];
  Findings findings;
  auto all = read_trials(folder_.file("config.yaml"), {}, findings, folder_.path().string());
  findings.throw_if_any();
  return match_trials(std::move(all), log_.run()).at(number);
}

/// With the length that it has in `run`.
Trial RunCalls::extended_trial(std::size_t number, const RunLog& run) const {
  const TrialLog& known = run.trials[number];
  Trial trial = trial_of(number);
  TrainConfig& train = trial.config.train;
  train.max_steps = known.max_steps;
  train.extended_from = known.extended_from;
  if (known.extension) train.lr_scheduler_extend = *known.extension;
  return trial;
}

/// Throws ConfigErrors.
TrialConfig RunCalls::config_of(const Trial& trial) const {
  Findings findings;
  auto configs = run_configs({trial}, folder_, findings);
  findings.throw_if_any();
  return std::move(configs.front());
}

std::string RunCalls::extend(const Json& event) {
  const std::size_t number = event.at("trial");
  RunLog extended = log_.run();
  extended.apply(event);
  config_of(extended_trial(number, extended));
  log_.add(event);
  log_.sync();
  refused_.erase(number);
  const TrialLog& trial = log_.run().trials[number];
  return fmt::format("trial {} trains on, to {} steps", trial.result.name, trial.max_steps);
}

/// Its steps are part of the log, its checkpoint is durable.
bool RunCalls::is_to_train_on(std::size_t number) const {
  const TrialLog& trial = log_.run().trials[number];
  const TrialResult& result = trial.result;
  if (!trial.extended_alone || refused_.contains(number)) return false;
  switch (result.state) {
    case TrialState::done:
      return result.steps < trial.max_steps && !is_live(number);
    case TrialState::stopped:
    case TrialState::stopped_early:
      return trial.call == TrialCall::extend && !is_live(number);
    default:
      return false;
  }
}

void RunCalls::train_on(std::size_t number) {
  const Trial trial = extended_trial(number, log_.run());
  TrialConfig config = config_of(trial);
  config.checkpoint.resume = true;
  config.exempt_from_early_stopping = true;
  session_.submit(std::move(config));
  const std::size_t first = trials_.size();
  trials_.push_back(trial);
  place_.trials.push_back(number);
  log_.add(restart_event(trials_, place_.trials, first, session_, log_.run().planned));
  log_.sync();
  may_go_on_ = true;
}

void RunCalls::train_extended() {
  for (std::size_t number = 0; number < log_.run().trials.size(); ++number) {
    if (!is_to_train_on(number)) continue;
    try {
      train_on(number);
    } catch (const IoError&) {
      throw;
    } catch (const Error& error) {
      refused_.insert(number);
      problems_ << fmt::format("spillway: trial {} cannot train on: {}\n",
                               log_.run().trials[number].result.name, error.what());
    }
  }
}

std::string RunCalls::answer_add(const std::vector<std::string>& values) {
  Findings findings;
  const RunConfig stored = stored_config(folder_).value();
  auto given = trials_with(folder_, values, findings);
  findings.throw_if_any();
  const RunConfig grown = given.front().config;
  given = match_trials(std::move(given), log_.run());
  extend_trials(given, log_.run(), stored, findings);
  const std::vector<Trial> added(given.begin() + std::ssize(log_.run().trials), given.end());
  auto configs = run_configs(added, folder_, findings);
  findings.throw_if_any();
  const std::size_t first = trials_.size();
  std::vector<std::string> names;
  for (std::size_t t = 0; t < added.size(); ++t) {
    folder_.add_trials({added[t].name});
    session_.submit(std::move(configs[t]));
    place_.trials.push_back(log_.run().trials.size() + t);
    trials_.push_back(added[t]);
    names.push_back(added[t].name);
  }
  store_growth(folder_, stored, grown);
  const Json event = added_event(trials_, first, session_);
  log_.add(event);
  log_.sync();
  metrics_.take(event);
  may_go_on_ = true;
  return fmt::format("trial {} trains from now on", fmt::join(names, ", "));
}

}  // namespace spillway
