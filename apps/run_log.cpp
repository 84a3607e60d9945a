#include "apps/run_log.h"

#include <array>
#include <cmath>
#include <limits>

#include "apps/event_json.h"
#include "core/error.h"

namespace spillway {
namespace {

void require(bool holds, const std::string& problem) {
  if (!holds) throw Error(problem);
}

/// Numbers that are not finite are null in JSON.
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

double number_at(const Json& event, const char* key) { return number_of(event.at(key)); }

TrialState state_of(const std::string& text) {
  if (const auto state = trial_state(text)) return *state;
  throw Error("'" + text + "' is no state of a trial");
}

TrialLog trial_of(const Json& json) {
  TrialLog trial{.max_steps = json.at("max_steps"),
                 .compute_s_per_step = json.at("compute_s_per_step"),
                 .checkpoint_bytes = json.value("checkpoint_bytes", Bytes{0}),
                 .result = {.name = json.at("name"),
                            .parameters = json.at("parameters"),
                            .num_shards = json.at("num_shards"),
                            .virtual_nodes = json.at("virtual_nodes"),
                            .lanes = json.at("lanes"),
                            .order = json.at("order"),
                            .training_state_bytes = json.at("training_state_bytes")}};
  for (const auto& [key, value] : json.at("sweep").items())
    trial.parameters.emplace_back(key, value);
  return trial;
}

void begin(RunLog& run, const Json& event) {
  const auto format = event.at("format").get<int>();
  require(format == kEventFormat,
          "is of format " + std::to_string(format) + ", not " + std::to_string(kEventFormat));
  run.name = event.at("name");
  run.metric.name = event.at("metric").at("name");
  run.metric.goal = event.at("metric").at("goal");
  if (!event.at("planned").is_null()) run.planned = totals_of(event.at("planned"));
  for (const auto& trial : event.at("trials")) run.trials.push_back(trial_of(trial));
  require(!run.trials.empty(), "names no trials");
}

StepMetrics& metrics_at(TrialLog& trial, std::int64_t step) {
  auto place = trial.metrics.end();
  while (place != trial.metrics.begin() && std::prev(place)->step >= step) --place;
  if (place == trial.metrics.end() || place->step != step)
    place = trial.metrics.insert(place, {.step = step});
  return *place;
}

void apply_state(TrialLog& trial, const Json& event) {
  trial.result.state = state_of(event.at("state"));
  trial.result.tokens_per_s = number_at(event, "tokens_per_s");
  trial.result.reason = event.value("reason", "");
  trial.result.weights_xxh3 = event.value("weights_xxh3", "");
}

void apply_step(TrialLog& trial, const Json& event) {
  trial.result.steps = event.at("step");
  // Of a program before this one, which had got further.
  std::erase_if(trial.metrics,
                [&](const StepMetrics& row) { return row.step >= trial.result.steps; });
  trial.result.final_loss = number_at(event, "loss");
  if (!trial.result.first_loss) trial.result.first_loss = trial.result.final_loss;
  trial.result.tokens_per_s = number_at(event, "tokens_per_s");
  auto& row = metrics_at(trial, trial.result.steps);
  row.loss = trial.result.final_loss;
  row.learning_rate = number_at(event, "learning_rate");
  row.gradient_norm = number_at(event, "gradient_norm");
  row.tokens_per_s = trial.result.tokens_per_s;
  row.time_s = number_at(event, "time_s");
}

void apply_eval(TrialLog& trial, const Json& event) {
  trial.result.eval_loss = number_at(event, "loss");
  metrics_at(trial, event.at("step")).eval_loss = trial.result.eval_loss;
}

/// What was said of later steps, and of the evaluation after this one, is said again.
void apply_resumed(TrialLog& trial, const Json& event) {
  const std::int64_t last = event.at("step");
  std::erase_if(trial.metrics, [&](const StepMetrics& row) { return row.step > last; });
  for (StepMetrics& row : trial.metrics) row.eval_loss.reset();
  TrialResult& result = trial.result;
  result.steps = last;
  result.eval_loss.reset();
  std::int64_t step = 0;
  for (const Json& values : event.at("steps")) {
    StepMetrics& row = metrics_at(trial, ++step);
    row.loss = number_of(values.at(0));
    row.learning_rate = number_of(values.at(1));
    row.gradient_norm = number_of(values.at(2));
    if (step == 1) result.first_loss = row.loss;
    result.final_loss = row.loss;
  }
  require(step == last, "has " + std::to_string(step) + " steps, not " + std::to_string(last));
  for (const Json& values : event.at("evals")) {
    result.eval_loss = number_of(values.at(1));
    metrics_at(trial, values.at(0)).eval_loss = result.eval_loss;
  }
}

/// Trials that had ended stay what they are; the others are begun again.
void restart(RunLog& run, const Json& event) {
  run.actual.reset();
  run.planned.reset();
  if (!event.at("planned").is_null()) run.planned = totals_of(event.at("planned"));
  for (const Json& json : event.at("trials")) {
    const auto index = json.at("trial").get<std::size_t>();
    require(index < run.trials.size(), "names a trial that is not there");
    TrialLog& trial = run.trials[index];
    trial.result.num_shards = json.at("num_shards");
    trial.result.lanes = json.at("lanes");
    trial.result.order = json.at("order");
    trial.result.state = TrialState::waiting;
    trial.result.steps = 0;
    trial.result.first_loss.reset();
    trial.result.final_loss.reset();
    trial.result.eval_loss.reset();
    trial.result.reason.clear();
  }
}

void apply_to(RunLog& run, const std::string& kind, const Json& event) {
  if (kind == "run") {
    require(run.trials.empty(), "begins a second run");
    return begin(run, event);
  }
  require(!run.trials.empty(), "comes before the event that begins the run");
  if (kind == "restart") return restart(run, event);
  require(!run.actual, "comes after the end of the run");
  if (kind == "end") {
    run.actual = totals_of(event);
    return;
  }
  require(event.at("sequence").get<std::uint64_t>() == run.sequence + 1, "events are missing");
  run.time_s = number_at(event, "time_s");
  if (run.sequence++ == 0) run.begin_s = run.time_s;
  if (kind == "joined" || kind == "left" || kind == "lost") {
    event.at("device").get<int>();
    return;
  }
  const auto index = event.at("trial").get<std::size_t>();
  require(index < run.trials.size(), "names a trial that is not there");
  auto& trial = run.trials[index];
  if (kind == "state") return apply_state(trial, event);
  if (kind == "step") return apply_step(trial, event);
  if (kind == "resized") {
    trial.result.lanes = event.at("lanes");
    return;
  }
  if (kind == "resumed") return apply_resumed(trial, event);
  if (kind == "redone" || kind == "saved" || kind == "damaged") return;
  require(kind == "eval", "'" + kind + "' is no kind of event");
  apply_eval(trial, event);
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
