#include "apps/commands/trial_call.h"

#include <fmt/format.h>

#include "runs/log/event_json.h"
#include "runs/log/trial_names.h"
#include "spillway/error.h"
#include "trainer/storage/json_number.h"

namespace spillway {
namespace {

std::size_t number_of(const std::string& name, const RunLog& run) {
  if (const auto number = trial_named(run, name)) return *number;
  throw ConfigError(
      "trial", 0,
      fmt::format("is '{}', which the run does not have; 'spillway results' lists its "
                  "trials",
                  name));
}

[[noreturn]] void refuse(const TrialLog& trial, const std::string& problem) {
  throw ConfigError("trial", 0, fmt::format("'{}' {}", trial.result.name, problem));
}

/// The length that the trial is to have.
std::int64_t new_length(const CallForTrial& call, const TrialLog& trial) {
  const std::int64_t now = trial.max_steps, length = call.steps.value_or(now);
  const bool is_more = length > now;
  if (length < now) {
    refuse(trial, fmt::format("has {} steps, which {} would shorten; give at least {}", now, length,
                              now + 1));
  }
  if (is_more || trial.result.state == TrialState::stopped_early) return length;
  refuse(trial, fmt::format("is {} and has {} steps; give a larger number of steps",
                            to_string(trial.result.state), now));
}

}  // namespace

Json event_of(const CallForTrial& call, const RunLog& run) {
  const std::size_t number = number_of(call.trial, run);
  const TrialLog& trial = run.trials[number];
  const TrialState state = trial.result.state;
  switch (call.call) {
    case TrialCall::stop:
    case TrialCall::pause:
      if (is_final(state) || trial.call == TrialCall::stop) {
        refuse(trial, fmt::format("has ended: it is {}", to_string(state)));
      }
      if (trial.call == call.call) refuse(trial, "is paused already");
      break;
    case TrialCall::none:
      if (trial.call == TrialCall::stop || trial.call == TrialCall::pause) break;
      refuse(trial, fmt::format("is {}; only a trial that was paused or stopped by a call can be "
                                "resumed alone",
                                to_string(state)));
    case TrialCall::extend:
      return called_event(number, call.call, new_length(call, trial));
  }
  return called_event(number, call.call);
}

Json request_of(const CallForTrial& call) {
  Json request{{"call", to_string(call.call)}, {"trial", call.trial}};
  if (call.steps) request["steps"] = *call.steps;
  return request;
}

CallForTrial call_of(const Json& request) {
  try {
    const auto call = value_named<TrialCall>(request.at("call").get<std::string>());
    if (!call) throw Error("the request has an unknown call");
    CallForTrial made{.call = *call, .trial = request.at("trial")};
    if (request.contains("steps")) made.steps = integer_of(request.at("steps"));
    return made;
  } catch (const Json::exception&) {
    throw Error("the request is damaged");
  }
}

}  // namespace spillway
