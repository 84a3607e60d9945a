#include "runs/control/trial_call.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "runs/config/config.h"
#include "runs/config/yaml_path.h"
#include "runs/log/event_json.h"
#include "runs/log/trial_names.h"
#include "spillway/error.h"
#include "trainer/config/train_changes.h"
#include "trainer/storage/json_number.h"

namespace spillway {

std::size_t number_of(const std::string& name, const RunLog& run) {
  if (const auto number = trial_named(run, name)) return *number;
  throw ConfigError(
      "trial", 0,
      fmt::format("is '{}', which the run does not have; 'spillway results' lists its "
                  "trials",
                  name));
}

namespace {

[[noreturn]] void refuse(const TrialLog& trial, const std::string& problem) {
  throw ConfigError("trial", 0, fmt::format("'{}' {}", trial.result.name, problem));
}

/// The length that the trial is to have.
std::int64_t new_length(const CallForTrial& call, const TrialLog& trial) {
  const std::int64_t now = trial.max_steps, length = call.steps.value_or(now);
  const bool is_more = length > now;
  if (trial.result.state == TrialState::failed) {
    refuse(trial,
           "has failed; 'spillway resume' with --retry-failed trains it again, then extend it");
  }
  if (length < now) {
    refuse(trial, fmt::format("has {} steps, which {} would shorten; give at least {}", now, length,
                              now + 1));
  }
  if (is_more || trial.result.state == TrialState::stopped_early) return length;
  refuse(trial, fmt::format("is {} and has {} steps; give a larger number of steps",
                            to_string(trial.result.state), now));
}

/// Its values as they are read from a file.
TrainConfig read_train(const YamlNode& tree, const std::set<std::string>& keys) {
  Findings all, found;
  TrainConfig train = read_config(tree, all).train;
  for (const ConfigError& error : all.all()) {
    if (keys.contains(error.field)) found.add(error.field, 0, error.problem);
  }
  found.throw_if_any();
  return train;
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
    case TrialCall::set:  // its step is not known here
      break;
    case TrialCall::extend:
      return extended_event(number, new_length(call, trial), call.extension);
  }
  return called_event(number, call.call);
}

void require_settable(std::size_t number, const RunLog& run) {
  const TrialLog& trial = run.trials.at(number);
  if (!is_final(trial.result.state) && trial.call != TrialCall::stop) return;
  refuse(trial, fmt::format("has ended: it is {}; clone it with other values",
                            to_string(trial.result.state)));
}

void require_cloneable(std::size_t number, const RunLog& run) {
  const TrialLog& trial = run.trials.at(number);
  if (is_final(trial.result.state)) return;
  refuse(trial, fmt::format("is {}; 'spillway resume' with --trial resumes it, then clone it",
                            to_string(trial.result.state)));
}

std::optional<std::size_t> ended_trial_of(const Json& request, const RunLog& run) {
  const std::size_t number = number_of(request.at("trial"), run);
  const TrialLog& trial = run.trials[number];
  if (request.at("call") == "set") require_settable(number, run);
  if (is_final(trial.result.state)) return number;
  if (trial.call == TrialCall::stop || trial.call == TrialCall::pause) {
    require_cloneable(number, run);
  }
  return std::nullopt;
}

Json request_of(const CallForTrial& call) {
  Json request{{"call", to_string(call.call)}, {"trial", call.trial}};
  if (call.steps) request["steps"] = *call.steps;
  if (call.extension) request["lr_scheduler_extend"] = to_string(*call.extension);
  return request;
}

CallForTrial call_of(const Json& request) {
  try {
    const auto call = value_named<TrialCall>(request.at("call").get<std::string>());
    if (!call) throw Error("the request has an unknown call");
    CallForTrial made{.call = *call, .trial = request.at("trial")};
    if (request.contains("steps")) made.steps = integer_of(request.at("steps"));
    const auto extension = request.value("lr_scheduler_extend", "");
    if (!extension.empty()) made.extension = value_named<LrExtension>(extension);
    return made;
  } catch (const Json::exception&) {
    throw Error("the request is damaged");
  }
}

bool is_among(std::span<const char* const> keys, std::string_view key) {
  return std::ranges::any_of(keys, [&](std::string_view known) { return known == key; });
}

TrialValues trial_values(const std::vector<std::string>& texts, std::span<const char* const> keys) {
  YamlNode tree{.kind = YamlNode::Kind::map};
  std::set<std::string> given;
  for (const std::string& text : texts) {
    const std::string key = text.substr(0, text.find('='));
    if (!is_among(keys, key)) {
      throw ConfigError(key, 0,
                        fmt::format("cannot be given here, which takes no other keys than {}",
                                    fmt::join(keys, ", ")));
    }
    apply_override(tree, text);
    given.insert(key);
  }
  const TrainConfig train = read_train(tree, given);
  const auto take = [&](const char* key, auto& into, const auto& value) {
    if (given.contains(key)) into = value;
  };
  TrialValues values;
  take("train.learning_rate", values.train.learning_rate, train.learning_rate);
  take("train.weight_decay", values.train.weight_decay, train.weight_decay);
  take("train.max_grad_norm", values.train.max_grad_norm, train.max_grad_norm);
  require_valid(values.train, "train.");
  take("train.max_steps", values.max_steps, train.max_steps);
  take("train.lr_scheduler_extend", values.extension, train.lr_scheduler_extend);
  return values;
}

}  // namespace spillway
