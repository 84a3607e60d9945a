#include "runs/log/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "runs/log/event_json.h"
#include "runs/log/event_line.h"
#include "spillway/error.h"
#include "trainer/config/train_changes.h"

namespace spillway {
namespace {

void require(bool holds, const std::string& problem) {
  if (!holds) throw Error(problem);
}

double number_at(const Json& event, const char* key) { return number_of(event.at(key)); }

TrialState state_of(const std::string& text) {
  if (const auto state = value_named<TrialState>(text)) return *state;
  throw Error(fmt::format("has the unknown trial state '{}'", text));
}

/// None if it lacks them.
std::vector<TrainChange> changes_of(const Json& json) {
  if (!json.contains("changes")) return {};
  return changes_in({{kChanges, json["changes"].dump()}});
}

TrialLog trial_of(const Json& json) {
  TrialLog trial{.max_steps = json.at("max_steps"),
                 .tokens_per_step = json.value("tokens_per_step", std::int64_t{0}),
                 .extended_from = json.value("extended_from", std::vector<std::int64_t>{}),
                 .changes = changes_of(json),
                 .compute_s_per_step = json.at("compute_s_per_step"),
                 .checkpoint_bytes = json.value("checkpoint_bytes", Bytes{0}),
                 .metrics = json.value("metrics", std::vector<std::string>()),
                 .placement = placement_of(json.value("placement", Json::array())),
                 .result = {.name = json.at("name"),
                            .parameters = json.at("parameters"),
                            .num_shards = json.at("num_shards"),
                            .virtual_nodes = json.at("virtual_nodes"),
                            .lanes = json.at("lanes"),
                            .order = json.at("order"),
                            .training_state_bytes = json.at("training_state_bytes")}};
  for (const auto& [key, value] : json.at("sweep").items())
    trial.parameters.emplace_back(key, value);
  if (json.contains("clone_of")) trial.clone_of = json.at("clone_of").get<std::size_t>();
  return trial;
}

std::vector<TrialLog> trials_of(const Json& event) {
  std::vector<TrialLog> trials;
  for (const auto& trial : event.at("trials")) trials.push_back(trial_of(trial));
  require(!trials.empty(), "names no trials");
  return trials;
}

void begin(RunLog& run, const Json& event) {
  const auto format = event.at("format").get<int>();
  require(format >= 1 && format <= kEventFormat, fmt::format("has the unknown format {}", format));
  run.name = event.at("name");
  const Json& metric = event.at("metric");
  const auto name = value_named<MetricKind>(metric.at("name").get<std::string>());
  const auto goal = value_named<MetricGoal>(metric.at("goal").get<std::string>());
  require(name && goal, "has an unknown metric");
  run.metric = {*name, *goal};
  if (!event.at("planned").is_null()) run.planned = totals_of(event.at("planned"));
  run.trials = trials_of(event);
  run.format = format;
}

/// The run gets more trials.
void add_trials(RunLog& run, const Json& event) {
  std::vector<TrialLog> added = trials_of(event);
  for (TrialLog& trial : added) {
    const auto has_its_name = [&](const TrialLog& known) {
      return known.result.name == trial.result.name;
    };
    require(std::ranges::none_of(run.trials, has_its_name),
            fmt::format("adds the trial '{}' again", trial.result.name));
    if (!trial.clone_of) continue;
    require(*trial.clone_of < run.trials.size(), "clones a trial that does not exist");
    const TrialLog& source = run.trials[*trial.clone_of];
    trial.extended_alone = source.extended_alone;
    trial.extension = source.extension;
  }
  std::ranges::move(added, std::back_inserter(run.trials));
  run.actual.reset();
}

void apply_state(TrialLog& trial, const Json& event) {
  const TrialState state = state_of(event.at("state"));
  const bool is_paused = state == TrialState::stopped && trial.call == TrialCall::pause;
  trial.result.state = is_paused ? TrialState::paused : state;  // the run has ended meanwhile
  trial.result.tokens_per_s = number_at(event, "tokens_per_s");
  trial.result.reason = event.value("reason", "");
  trial.result.weights_xxh3 = event.value("weights_xxh3", "");
}

void apply_step(TrialLog& trial, const Json& event) {
  trial.result.steps = event.at("step");
  trial.result.final_loss = number_at(event, "loss");
  if (!trial.result.first_loss) trial.result.first_loss = trial.result.final_loss;
  trial.result.tokens_per_s = number_at(event, "tokens_per_s");
  for (const char* key : {"learning_rate", "gradient_norm", "time_s"}) number_at(event, key);
}

void apply_eval(TrialLog& trial, const Json& event) {
  event.at("step").get<std::int64_t>();
  trial.result.eval_loss = number_at(event, "loss");
  trial.result.metrics = metrics_of(event.value("metrics", Json::object()));
}

/// Drops later steps and the evaluation after this one: the trial repeats them.
void apply_resumed(TrialLog& trial, const Json& event) {
  const std::int64_t last = event.at("step"), dropped = event.value("dropped", std::int64_t{0});
  const Json& steps = event.at("steps");
  const std::int64_t num_steps = dropped + std::ssize(steps);
  require(num_steps == last, fmt::format("has {} steps, not {}", num_steps, last));
  for (const Json& values : steps) {
    for (std::size_t i = 0; i < 3; ++i) number_of(values.at(i));
  }
  std::optional<double> eval_loss;
  Metrics metrics;
  for (const Json& values : event.at("evals")) {
    values.at(0).get<std::int64_t>();
    eval_loss = number_of(values.at(1));
    metrics = values.size() > 2 ? metrics_of(values.at(2)) : Metrics();
  }
  TrialResult& result = trial.result;
  result.steps = last;
  result.dropped_steps = dropped;
  result.eval_loss = eval_loss;
  result.metrics = std::move(metrics);
  if (steps.empty()) return;
  result.first_loss = number_of(event.value("first_loss", steps.front().at(0)));
  result.final_loss = number_of(steps.back().at(0));
}

/// Resets the trials that are resumed; trials that have ended keep their state.
void restart(RunLog& run, const Json& event) {
  std::optional<RunResult> planned;
  if (!event.at("planned").is_null()) planned = totals_of(event.at("planned"));
  std::vector<TrialLog> trials = run.trials;
  for (const Json& json : event.at("trials")) {
    const auto index = json.at("trial").get<std::size_t>();
    require(index < trials.size(), "names a trial that does not exist");
    TrialLog& trial = trials[index];
    trial.max_steps = json.value("max_steps", trial.max_steps);
    trial.extended_from = json.value("extended_from", trial.extended_from);
    trial.changes = changes_of(json);
    trial.placement = placement_of(json.value("placement", Json::array()));
    trial.result.num_shards = json.at("num_shards");
    trial.result.lanes = json.at("lanes");
    trial.result.order = json.at("order");
    trial.result.state = TrialState::waiting;
    trial.result.steps = 0;
    trial.result.first_loss.reset();
    trial.result.final_loss.reset();
    trial.result.eval_loss.reset();
    trial.result.metrics.clear();
    trial.result.reason.clear();
  }
  run.actual.reset();
  run.planned = std::move(planned);
  run.trials = std::move(trials);
}

/// Durable before the user has an answer; the trial's own events follow when it has happened.
void apply_called(RunLog& run, const Json& event) {
  const auto index = event.at("trial").get<std::size_t>();
  require(index < run.trials.size(), "names a trial that does not exist");
  const auto call = value_named<TrialCall>(event.at("call").get<std::string>());
  require(call.has_value(), "has an unknown call");
  TrialLog trial = run.trials[index];
  if (call == TrialCall::set) {
    run.trials[index].changes = changes_of(event);
    return;
  }
  trial.call = *call;
  if (call == TrialCall::extend) {
    const std::int64_t max_steps = event.at("max_steps");
    require(max_steps >= trial.max_steps, "makes a trial shorter");
    if (max_steps > trial.max_steps) trial.extended_from.push_back(trial.max_steps);
    trial.max_steps = max_steps;
    trial.extended_alone = true;
    if (event.contains("lr_scheduler_extend")) {
      trial.extension = value_named<LrExtension>(event["lr_scheduler_extend"].get<std::string>());
      require(trial.extension.has_value(), "has an unknown schedule");
    }
  }
  if (!has_ended(trial.result.state)) {
    if (call == TrialCall::stop) trial.result.state = TrialState::stopped;
    if (call == TrialCall::pause) trial.result.state = TrialState::paused;
  }
  run.trials[index] = std::move(trial);
}

void apply_saved(TrialLog& trial, const Json& event) {
  trial.saved = {.generation = event.value("generation", std::uint64_t{0}),
                 .step = event.at("step")};
}

/// Lines before this one are lost; one of them may have been a `restart`.
void apply_repaired(RunLog& run, const Json& event) {
  const auto sequence = event.at("sequence").get<std::uint64_t>();
  event.at("events").get<std::uint64_t>();
  require(sequence >= run.sequence, fmt::format("goes back to event {}", sequence));
  run.sequence = sequence;
  run.actual.reset();
}

void apply_to_trial(TrialLog& trial, const std::string& kind, const Json& event) {
  if (kind == "state") return apply_state(trial, event);
  if (kind == "step") return apply_step(trial, event);
  if (kind == "resized") {
    trial.result.lanes = event.at("lanes");
    return;
  }
  if (kind == "resumed") {
    apply_saved(trial, event);
    return apply_resumed(trial, event);
  }
  if (kind == "saved") {
    const bool is_written = !event.contains("reason");
    return is_written ? apply_saved(trial, event) : void();
  }
  if (kind == "redone" || kind == "damaged" || kind == "set") return;
  require(kind == "eval", fmt::format("has the unknown event kind '{}'", kind));
  apply_eval(trial, event);
}

void apply_to(RunLog& run, const std::string& kind, const Json& event) {
  if (kind == "run") {
    require(run.trials.empty(), "starts a second run");
    return begin(run, event);
  }
  require(!run.trials.empty(), "comes before the event that starts the run");
  if (kind == "restart") return restart(run, event);
  if (kind == "added") return add_trials(run, event);
  if (kind == kCalledEvent) return apply_called(run, event);
  if (kind == kRepairedEvent) return apply_repaired(run, event);
  require(!run.actual, "comes after the end of the run");
  if (kind == "end") {
    run.actual = totals_of(event);
    return;
  }
  const auto sequence = event.at("sequence").get<std::uint64_t>();
  require(sequence == run.sequence + 1,
          fmt::format("is event {}, but event {} is next", sequence, run.sequence + 1));
  const double time_s = number_at(event, "time_s");
  if (kind == "joined" || kind == "left" || kind == "lost") {
    event.at(event.contains("host") ? "host" : "device").get<int>();
  } else {
    const auto index = event.at("trial").get<std::size_t>();
    require(index < run.trials.size(), "names a trial that does not exist");
    TrialLog trial = run.trials[index];
    apply_to_trial(trial, kind, event);
    run.trials[index] = std::move(trial);
  }
  run.time_s = time_s;
  if (run.sequence++ == 0) run.begin_s = time_s;
}

}  // namespace

void RunLog::apply(const Json& event) {
  try {
    apply_to(*this, event.at("event"), event);
  } catch (const Json::exception& error) {
    // "[json.exception.out_of_range.403] key 'trial' not found"
    const std::string text = error.what();
    throw Error(text.substr(text.find("] ") + 2));
  }
}

}  // namespace spillway
