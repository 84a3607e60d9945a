#include "apps/event_json.h"

#include <utility>

namespace spillway {
namespace {

Json trial_json(const Trial& trial, const TrialResult& result, const TrialPlan& plan) {
  Json sweep = Json::object();
  for (const auto& [key, value] : trial.parameters) sweep[key] = value;
  return {{"name", trial.name},
          {"sweep", std::move(sweep)},
          {"max_steps", trial.config.train.max_steps},
          {"parameters", result.parameters},
          {"training_state_bytes", result.training_state_bytes},
          {"num_shards", result.num_shards},
          {"virtual_nodes", result.virtual_nodes},
          {"lanes", result.lanes},
          {"order", result.order},
          {"compute_s_per_step", plan.compute_s_per_step}};
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
  Json devices = Json::array(), trials_json = Json::array();
  for (const auto& device : config.session.devices)
    devices.push_back({{"kind", device.kind}, {"budget_bytes", device.memory}});
  const auto results = session.result().trials;
  for (std::size_t t = 0; t < trials.size(); ++t)
    trials_json.push_back(trial_json(trials[t], results[t], session.plan(JobId(t))));
  return {{"event", "run"},
          {"format", kEventFormat},
          {"name", config.name},
          {"metric", {{"name", config.sweep.metric.name}, {"goal", config.sweep.metric.goal}}},
          {"devices", std::move(devices)},
          {"planned", planned ? totals_json(*planned) : Json(nullptr)},
          {"trials", std::move(trials_json)}};
}

Json to_json(const SessionEvent& event) {
  Json json{{"event", name_of(event.kind)}, {"sequence", event.sequence}, {"time_s", event.time_s}};
  if (event.device >= 0) {
    json["device"] = event.device;
    if (!event.reason.empty()) json["reason"] = event.reason;
    return json;
  }
  json["trial"] = event.trial.index();
  if (event.kind == SessionEvent::Kind::state) {
    json.update({{"state", to_string(event.state)}, {"tokens_per_s", event.tokens_per_s}});
    if (!event.reason.empty()) json["reason"] = event.reason;
    if (!event.weights_xxh3.empty()) json["weights_xxh3"] = event.weights_xxh3;
    return json;
  }
  json["step"] = event.step;
  if (event.kind == SessionEvent::Kind::resized) json["lanes"] = event.lanes;
  if (event.kind == SessionEvent::Kind::resized || event.kind == SessionEvent::Kind::redone)
    return json;
  json["loss"] = event.loss;
  if (event.kind == SessionEvent::Kind::step) {
    json.update({{"learning_rate", event.learning_rate},
                 {"gradient_norm", event.gradient_norm},
                 {"tokens_per_s", event.tokens_per_s}});
  }
  return json;
}

Json end_event(const RunResult& result) {
  Json json{{"event", "end"}};
  json.update(totals_json(result));
  return json;
}

}  // namespace spillway
