#include "runs/control/run_calls.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <utility>

#include "runs/control/clone_trial.h"
#include "runs/folder/growth.h"
#include "runs/folder/prepare.h"
#include "runs/log/event_json.h"
#include "runs/log/trial_names.h"
#include "spillway/error.h"
#include "trainer/config/train_changes.h"

namespace spillway {

RunCalls::RunCalls(OpenRun& run, const OutputFolder& folder, MetricsFiles& metrics,
                   std::ostream& problems)
    : session_(*run.session),
      trials_(run.trials),
      place_(run.place),
      folder_(folder),
      log_(*run.events),
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
  const std::string call = request.value("call", "");
  const auto values = request.value("values", std::vector<std::string>{});
  const bool adds_work = call == "add" || call == "set" || call == "clone" || call == "extend";
  if (adds_work && trials_.front().config.session.hosts.several()) {
    throw Error(
        "trials cannot be added or changed with several hosts or hosts.start_size; stop the run, "
        "and start all hosts again with the change");
  }
  if (call == "add") return answer_add(values);
  if (call != "set" && call != "clone") return answer_call(request);
  const std::size_t number = number_of(request.value("trial", ""), log_.run());
  return call == "set" ? set(number, values) : clone(number, values);
}

/// A trial that was paused or stopped before the session began.
void RunCalls::refuse_as_absent(std::size_t number) const {
  throw Error(
      fmt::format("trial '{}' no longer takes part in this run; once the run has ended, "
                  "'spillway resume {} --trial' resumes it",
                  log_.run().trials[number].result.name, folder_.path().string()));
}

std::string RunCalls::answer_call(const Json& request) {
  const CallForTrial call = call_of(request);
  const Json event = event_of(call, log_.run());
  const std::size_t number = event.at("trial");
  const std::string name = log_.run().trials[number].result.name;
  if (call.call == TrialCall::extend) return extend(event);
  const bool live = is_live(number);
  if (call.call == TrialCall::none && !live) refuse_as_absent(number);
  log_.add(event);
  log_.sync();
  switch (call.call) {
    case TrialCall::stop:
      if (live) session_.stop(*job_of(number));
      return fmt::format("trial {} ends after its current step", name);
    case TrialCall::pause:
      if (live) session_.pause(*job_of(number));
      return fmt::format("trial {} pauses after its current step", name);
    default:
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
  if (!has_ended(log_.run().trials[number].result.state) && !job_of(number)) {
    refuse_as_absent(number);
  }
  RunLog extended = log_.run();
  extended.apply(event);
  const TrialConfig config = config_of(extended_trial(number, extended));
  log_.add(event);
  log_.sync();
  refused_.erase(number);
  if (const auto job = job_of(number)) {
    session_.exempt_from_early_stopping(*job);
    session_.resume(*job);  // it may be paused
  }
  may_go_on_ = true;
  const TrialLog& trial = log_.run().trials[number];
  return fmt::format("trial {} trains on, to {} steps{}", trial.result.name, trial.max_steps,
                     config.checkpoint.keep > 0
                         ? ""
                         : ", from the beginning: checkpoint.keep is 0, so it has no checkpoint");
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

std::string RunCalls::set(std::size_t number, const std::vector<std::string>& values) {
  const TrainValues given = trial_values(values, kSetKeys).train;
  require_settable(number, log_.run());
  const auto job = job_of(number);
  if (!job) refuse_as_absent(number);
  const std::int64_t step = session_.set(*job, given);
  log_.add(set_event(number, session_.result().trials[job->index()].changes));
  log_.sync();
  return fmt::format("trial {} has {} from step {} on", log_.run().trials[number].result.name,
                     to_string(given), step + 1);
}

/// The trial of the session; one that an earlier process has ended comes in for its checkpoint.
JobId RunCalls::source_of(std::size_t number) {
  if (const auto job = job_of(number)) return *job;
  require_cloneable(number, log_.run());
  const Trial trial = extended_trial(number, log_.run());
  session_.submit(config_of(trial));
  trials_.push_back(trial);
  place_.trials.push_back(number);
  return JobId(trials_.size() - 1);
}

/// A folder of this name may be left of a clone that was killed as it began.
std::string RunCalls::name_of_clone(std::size_t number) const {
  const std::string wish = log_.run().trials[number].result.name + "-clone";
  std::string name = wish;
  for (int i = 2; std::filesystem::exists(trial_folder(folder_.path(), name)); ++i) {
    name = fmt::format("{}-{}", wish, i);
  }
  return name;
}

/// A clone with more steps is extended at once, as by a second call.
std::string RunCalls::clone(std::size_t number, const std::vector<std::string>& values) {
  const TrialValues given = trial_values(values, kCloneKeys);
  const JobId source = source_of(number);
  Trial trial = clone_of(trials_[source.index()], values);
  const TrialConfig config = config_of(longer(trial, given));
  const std::int64_t length = config.train.max_steps, before = trial.config.train.max_steps;
  trial.name = name_of_clone(number);
  folder_.add_trials({trial.name});
  session_.clone(source, {.name = trial.name,
                          .client_id = trial.name,
                          .values = given.train,
                          .checkpoint_folder = folder_.checkpoints(trial.name),
                          .weights_file = folder_.weights_file(trial.name)});
  const std::size_t added = log_.run().trials.size();
  trials_.push_back(trial);
  place_.trials.push_back(added);
  const Json event = cloned_event(trials_, number, session_);
  log_.add(event);
  if (length > before) log_.add(extended_event(added, length, given.extension));
  log_.sync();
  metrics_.take(event);
  may_go_on_ = true;
  return fmt::format("trial {} trains from now on, a clone of {}", trial.name,
                     log_.run().trials[number].result.name);
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
  session_.check(configs);
  const std::size_t first = trials_.size();
  std::vector<std::string> names;
  for (const Trial& trial : added) names.push_back(trial.name);
  folder_.add_trials(names);
  for (std::size_t t = 0; t < added.size(); ++t) {
    session_.submit(std::move(configs[t]));
    place_.trials.push_back(log_.run().trials.size() + t);
    trials_.push_back(added[t]);
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
