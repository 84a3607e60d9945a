#include "spillway/results.h"

namespace spillway {

const char* to_string(TrialState state) {
  switch (state) {
    case TrialState::waiting:
      return "waiting";
    case TrialState::paused:
      return "paused";
    case TrialState::running:
      return "running";
    case TrialState::done:
      return "done";
    case TrialState::failed:
      return "failed";
    case TrialState::stopped:
      return "stopped";
    case TrialState::stopped_early:
      return "stopped early";
  }
  return "?";
}

bool is_final(TrialState state) { return has_ended(state) && state != TrialState::stopped; }

std::optional<TrialState> trial_state(std::string_view text) {
  using enum TrialState;
  for (const auto state : {waiting, paused, running, done, failed, stopped, stopped_early}) {
    if (text == to_string(state)) return state;
  }
  return std::nullopt;
}

}  // namespace spillway
