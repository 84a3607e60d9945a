#include "trainer/trial/trial_lifecycle.h"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <stdexcept>

namespace spillway {
namespace {

using enum TrialPhase;

struct Row {
  const char* name;
  std::optional<TrialState> shown;
  std::uint32_t next;  ///< a bit for each phase
};

constexpr std::uint32_t set(std::initializer_list<TrialPhase> phases) {
  std::uint32_t bits = 0;
  for (const TrialPhase phase : phases) bits |= 1u << static_cast<unsigned>(phase);
  return bits;
}

/// A job that is admitted to the run and continues.
constexpr std::uint32_t kAdmitted =
    set({undecided, running, paused, at_rung, at_until, suspended, stranded});
/// Any job may be stopped, or fail.
constexpr std::uint32_t kStops = set({failed, stopped});
constexpr std::uint32_t kLive = kAdmitted | kStops | set({stopping_early, releasing});

/// In the order of the phases. An unadmitted trial may wait for others, the user or a device too;
/// from there it returns to `submitted`.
constexpr std::array<Row, 14> kRows{{
    {"submitted", TrialState::waiting, kLive | set({submitted})},
    {"undecided", {}, kLive},
    {"running", TrialState::running, kLive},
    {"paused", TrialState::waiting, kLive},
    {"at a rung", TrialState::waiting, kLive | set({submitted})},
    {"at its step", TrialState::paused, kLive},
    {"suspended", TrialState::paused, kLive | set({submitted})},
    {"stranded", TrialState::waiting, kLive | set({submitted})},
    {"stopping early", {}, kStops | set({stopped_early})},
    {"releasing", {}, kStops | set({done})},
    {"done", TrialState::done, 0},
    {"failed", TrialState::failed, 0},
    {"stopped", TrialState::stopped, 0},
    {"stopped early", TrialState::stopped_early, 0},
}};

const Row& row(TrialPhase phase) { return kRows.at(static_cast<std::size_t>(phase)); }

}  // namespace

const char* to_string(TrialPhase phase) { return row(phase).name; }

bool is_legal(TrialPhase from, TrialPhase to) { return (row(from).next & set({to})) != 0; }

std::optional<TrialState> shown_state(TrialPhase phase) { return row(phase).shown; }

void TrialLifecycle::enter(TrialPhase next) {
  if (!is_legal(phase_, next)) {
    throw std::logic_error(
        fmt::format("a trial cannot go from {} to {}", to_string(phase_), to_string(next)));
  }
  phase_ = next;
}

void TrialLifecycle::recall(TrialState ended) {
  for (const TrialPhase phase : {done, failed, stopped_early}) {
    if (phase_ == submitted && shown_state(phase) == ended) {
      phase_ = phase;
      return;
    }
  }
  throw std::logic_error(
      fmt::format("a trial that is {} was not {} before", to_string(phase_), to_string(ended)));
}

}  // namespace spillway
