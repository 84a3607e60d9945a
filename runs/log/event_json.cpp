#include "runs/log/event_json.h"

#include <map>
#include <utility>

#include "runs/log/placed_layers.h"
#include "trainer/compute/optimizer.h"
#include "trainer/config/train_changes.h"

namespace spillway {
namespace {

void put_steps(Json& json, const TrainConfig& train) {
  json["max_steps"] = train.max_steps;
  if (!train.extended_from.empty()) json["extended_from"] = train.extended_from;
}

void put_changes(Json& json, const std::vector<TrainChange>& changes) {
  if (changes.empty()) return;
  Contract contract;
  set_changes(contract, changes);
  json["changes"] = Json::parse(contract.at(kChanges));
}

void put_placement(Json& json, const TrialPlan& plan) {
  if (!plan.placement.empty()) json["placement"] = placement_json(placed_layers(plan));
}

Json trial_json(const Trial& trial, const TrialResult& result, const TrialPlan& plan) {
  Json sweep = Json::object();
  for (const auto& [key, value] : trial.parameters) sweep[key] = value;
  Json json{{"name", trial.name},
            {"sweep", std::move(sweep)},
            {"parameters", result.parameters},
            {"training_state_bytes", result.training_state_bytes},
            {"num_shards", result.num_shards},
            {"virtual_nodes", result.virtual_nodes},
            {"lanes", result.lanes},
            {"order", result.order},
            {"checkpoint_bytes", plan.checkpoint_bytes},
            {"tokens_per_step", trial.config.tokens_per_step()},
            {"compute_s_per_step", plan.compute_s_per_step},
            {"metrics", trial.config.metrics()}};
  put_placement(json, plan);
  put_steps(json, trial.config.train);
  put_changes(json, result.changes);
  return json;
}

/// Of the session's trials from number `first` on.
Json trials_json(const std::vector<Trial>& trials, std::size_t first, const Session& session) {
  Json list = Json::array();
  const auto results = session.result().trials;
  for (std::size_t t = first; t < trials.size(); ++t)
    list.push_back(trial_json(trials[t], results[t], session.plan(JobId(t))));
  return list;
}

const char* name_of(SessionEvent::Kind kind) {
  switch (kind) {
    case SessionEvent::Kind::state:
      return "state";
    case SessionEvent::Kind::step:
      return "step";
    case SessionEvent::Kind::eval:
      return "eval";
    case SessionEvent::Kind::resized:
      return "resized";
    case SessionEvent::Kind::redone:
      return "redone";
    case SessionEvent::Kind::resumed:
      return "resumed";
    case SessionEvent::Kind::saved:
      return "saved";
    case SessionEvent::Kind::set:
      return "set";
    case SessionEvent::Kind::damaged:
      return "damaged";
    case SessionEvent::Kind::joined:
      return "joined";
    case SessionEvent::Kind::left:
      return "left";
    case SessionEvent::Kind::lost:
      return "lost";
  }
  return "?";
}

}  // namespace

Json run_event(const std::vector<Trial>& trials, const Session& session,
               const std::optional<RunResult>& planned) {
  const auto& config = trials.front().config;
  Json devices = Json::array();
  for (const auto& device : config.session.devices)
    devices.push_back({{"kind", to_string(device.kind)}, {"budget_bytes", device.memory}});
  return {{"event", "run"},
          {"format", kEventFormat},
          {"name", config.name},
          {"metric",
           {{"name", to_string(config.sweep.metric.name)},
            {"goal", to_string(config.sweep.metric.goal)}}},
          {"devices", std::move(devices)},
          {"planned", planned ? totals_json(*planned) : Json(nullptr)},
          {"trials", trials_json(trials, 0, session)}};
}

Json added_event(const std::vector<Trial>& trials, std::size_t first, const Session& session) {
  return {{"event", "added"}, {"trials", trials_json(trials, first, session)}};
}

Json to_json(const SessionEvent& event) {
  Json json{{"event", name_of(event.kind)}, {"sequence", event.sequence}, {"time_s", event.time_s}};
  const bool is_of_trial = event.is_of_trial();
  if (is_of_trial) {
    json["trial"] = event.trial.index();
  } else if (event.host >= 0) {
    json["host"] = event.host;
  } else {
    json["device"] = event.device;
  }
  if (event.kind == SessionEvent::Kind::state) {
    json.update({{"state", to_string(event.state)}, {"tokens_per_s", event.tokens_per_s}});
    if (!event.weights_xxh3.empty()) json["weights_xxh3"] = event.weights_xxh3;
  } else if (is_of_trial) {
    json["step"] = event.step;
  }
  if (event.kind == SessionEvent::Kind::resized) json["lanes"] = event.lanes;
  if (event.kind == SessionEvent::Kind::saved || event.kind == SessionEvent::Kind::resumed)
    json["generation"] = event.generation;
  if (event.kind == SessionEvent::Kind::step || event.kind == SessionEvent::Kind::eval)
    json["loss"] = event.loss;
  if (!event.metrics.empty()) json["metrics"] = event.metrics;
  if (event.kind == SessionEvent::Kind::step) {
    json.update({{"learning_rate", event.learning_rate},
                 {"gradient_norm", event.gradient_norm},
                 {"tokens_per_s", event.tokens_per_s}});
  }
  if (event.kind == SessionEvent::Kind::set) json["learning_rate"] = event.learning_rate;
  if (!event.reason.empty()) json["reason"] = event.reason;
  return json;
}

Json restart_event(const std::vector<Trial>& trials, const std::vector<std::size_t>& numbers,
                   std::size_t first, const Session& session,
                   const std::optional<RunResult>& planned) {
  Json list = Json::array();
  const auto results = session.result().trials;
  for (std::size_t t = first; t < numbers.size(); ++t) {
    if (has_ended(results[t].state)) continue;
    Json json{{"trial", numbers[t]},
              {"num_shards", results[t].num_shards},
              {"lanes", results[t].lanes},
              {"order", results[t].order}};
    put_steps(json, trials[t].config.train);
    put_changes(json, results[t].changes);
    put_placement(json, session.plan(JobId(t)));
    list.push_back(std::move(json));
  }
  return {{"event", "restart"},
          {"planned", planned ? totals_json(*planned) : Json(nullptr)},
          {"trials", std::move(list)}};
}

Json called_event(std::size_t trial, TrialCall call) {
  return {{"event", kCalledEvent}, {"trial", trial}, {"call", to_string(call)}};
}

Json extended_event(std::size_t trial, std::int64_t max_steps,
                    std::optional<LrExtension> extension) {
  Json json = called_event(trial, TrialCall::extend);
  json["max_steps"] = max_steps;
  if (extension) json["lr_scheduler_extend"] = to_string(*extension);
  return json;
}

Json set_event(std::size_t trial, const std::vector<TrainChange>& changes) {
  Json json = called_event(trial, TrialCall::set);
  put_changes(json, changes);
  return json;
}

Json cloned_event(const std::vector<Trial>& trials, std::size_t source, const Session& session) {
  Json json = added_event(trials, trials.size() - 1, session);
  json["trials"][0]["clone_of"] = source;
  return json;
}

Json resumed_event(const SessionEvent& event, const TrialResult& result, const TrainConfig& train) {
  TrainConfig changed = train;
  changed.changes = result.changes;
  Json json = to_json(event), steps = Json::array(), evals = Json::array();
  for (std::int64_t step = result.dropped_steps + 1; step <= event.step; ++step) {
    const auto i = static_cast<std::size_t>(step - result.dropped_steps - 1);
    steps.push_back(
        {result.losses.at(i), learning_rate_at(changed, step - 1), result.gradient_norms.at(i)});
  }
  if (result.dropped_steps > 0) {
    json["dropped"] = result.dropped_steps;
    json["first_loss"] = result.first_loss.value_or(0);
  }
  const std::map<std::int64_t, Metrics> metrics(result.eval_metrics.begin(),
                                                result.eval_metrics.end());
  for (const auto& [step, loss] : result.eval_losses) {
    if (step >= event.step) continue;
    evals.push_back({step, loss});
    if (metrics.contains(step)) evals.back().push_back(metrics.at(step));
  }
  json["steps"] = std::move(steps);
  json["evals"] = std::move(evals);
  return json;
}

Json end_event(const RunResult& result) {
  Json json{{"event", "end"}};
  json.update(totals_json(result));
  return json;
}

}  // namespace spillway
