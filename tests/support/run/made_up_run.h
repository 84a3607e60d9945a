#pragma once

#include <string>
#include <vector>

#include "runs/log/event_json.h"
#include "spillway/events.h"

/// Events that a run could emit, without a run.
namespace spillway::testing {

inline RunResult made_up_totals() {
  return {.devices = {{.kind = "cpu", .budget_bytes = 4096, .peak_bytes = 1000, .busy_share = 0.5}},
          .host_budget_bytes = 1 << 20,
          .host_peak_bytes = 5000,
          .h2d_bytes = 300,
          .d2h_bytes = 200,
          .h2d_weight_bytes = 100,
          .copy_s = 0.25,
          .copy_hidden_share = 0.75,
          .copy_wait_s = 0.125,
          .wall_s = 9.5};
}

/// For trials named "trial 0", "trial 1", ..., each of ten steps that take a second.
inline Json made_up_run_event(int num_trials) {
  auto planned = made_up_totals();
  planned.wall_s = 8;
  planned.devices[0].peak_bytes = 900;
  Json trials = Json::array();
  for (int t = 0; t < num_trials; ++t) {
    trials.push_back({{"name", "trial " + std::to_string(t)},
                      {"sweep", {{"seed", std::to_string(t)}}},
                      {"max_steps", 10},
                      {"parameters", 7},
                      {"training_state_bytes", 112},
                      {"num_shards", 2},
                      {"virtual_nodes", 4},
                      {"lanes", 1},
                      {"order", "shard_major"},
                      {"compute_s_per_step", 1.0}});
  }
  return {{"event", "run"},
          {"format", kEventFormat},
          {"name", "made up"},
          {"metric", {{"name", "eval_loss"}, {"goal", "minimize"}}},
          {"devices", {{{"kind", "cpu"}, {"budget_bytes", 4096}}}},
          {"planned", totals_json(planned)},
          {"trials", trials}};
}

inline SessionEvent made_up_event(std::uint64_t sequence, double time_s, std::size_t trial,
                                  SessionEvent::Kind kind) {
  return {.sequence = sequence, .time_s = time_s, .trial = JobId(trial), .kind = kind};
}

/// Trial 0 takes two steps, is evaluated after each and is done; trial 1 fails before its first.
inline std::vector<SessionEvent> made_up_events() {
  using Kind = SessionEvent::Kind;
  std::vector<SessionEvent> events{
      made_up_event(1, 1, 0, Kind::state), made_up_event(2, 1, 1, Kind::state),
      made_up_event(3, 2, 0, Kind::step),  made_up_event(4, 2.5, 1, Kind::state),
      made_up_event(5, 3, 0, Kind::eval),  made_up_event(6, 3, 0, Kind::step),
      made_up_event(7, 4, 0, Kind::eval),  made_up_event(8, 4, 0, Kind::state)};
  events[0].state = events[1].state = TrialState::running;
  events[2].step = events[4].step = 1;
  events[5].step = events[6].step = 2;
  events[2].loss = 4.5, events[4].loss = 4.25, events[5].loss = 3.5, events[6].loss = 3.75;
  events[2].learning_rate = 0.01, events[5].learning_rate = 0.005;
  events[2].gradient_norm = 2, events[5].gradient_norm = 1.5;
  events[2].tokens_per_s = 100, events[5].tokens_per_s = 120, events[7].tokens_per_s = 120;
  events[3].state = TrialState::failed;
  events[3].reason = "out of luck";
  events[7].state = TrialState::done;
  events[7].weights_xxh3 = "0123456789abcdef0123456789abcdef";
  return events;
}

}  // namespace spillway::testing
