#pragma once

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/run/seeded_trial.h"

/// Trials that wait at a step, so that calls come at a known one.
namespace spillway::testing {

/// A step after which tests change a trial, and a change.
inline constexpr std::int64_t kStep = 5;
inline const TrainValues kSlower{.learning_rate = 1e-4};

inline TrialConfig trial_until(std::int64_t until, std::uint64_t seed = 1) {
  TrialConfig trial = trial_of_seed(seed);
  trial.until = until;
  return trial;
}

/// The same, with a checkpoint after each step in `folder`, whose name is its client id.
inline TrialConfig kept_until(std::int64_t until, const std::filesystem::path& folder) {
  TrialConfig trial = trial_until(until);
  trial.client_id = folder.filename();
  trial.checkpoint = {.folder = folder, .every_steps = 1};
  return trial;
}

/// For a trial with additional evaluations where it paused.
inline void expect_same_training(const TrialResult& a, const TrialResult& b) {
  ASSERT_EQ(a.state, TrialState::done) << a.reason;
  EXPECT_EQ(a.weights_xxh3, b.weights_xxh3);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.gradient_norms, b.gradient_norms);
  EXPECT_EQ(a.eval_loss, b.eval_loss);
}

inline TrialResult result_of(const Session& session, JobId trial) {
  return session.result().trials.at(trial.index());
}

/// The trial of a seed in its own session, with these changes from the start.
inline TrialResult changed_alone(const std::vector<TrainChange>& changes, std::uint64_t seed = 1) {
  TrialConfig trial = trial_of_seed(seed);
  trial.train.changes = changes;
  return train(session_of(1, kAmple), trial).trials[0];
}

/// The first event of this kind, if there is one within a minute.
inline SessionEvent event_of(const Session& session, SessionEvent::Kind kind) {
  for (std::uint64_t seen = 0;;) {
    const auto events = session.poll(seen, 60);
    for (const SessionEvent& event : events) {
      seen = event.sequence;
      if (event.kind == kind) return event;
    }
    if (events.empty()) return {};
  }
}

/// Copies a folder in which a session writes; starts again if a file disappears meanwhile.
inline void copy_live_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  while (true) {
    std::filesystem::remove_all(to);
    try {
      return std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
    } catch (const std::filesystem::filesystem_error& error) {
      if (error.code() != std::errc::no_such_file_or_directory) throw;
    }
  }
}

/// Waits until so many trials have a checkpoint of this step, then copies a folder, as a kill would
/// leave it.
inline void copy_run(const Session& session, std::int64_t step, const std::filesystem::path& from,
                     const std::filesystem::path& to, int num_trials = 1) {
  for (std::uint64_t seen = 0; num_trials > 0;) {
    for (const SessionEvent& event : session.poll(seen, 60)) {
      seen = event.sequence;
      const bool is_saved = event.kind == SessionEvent::Kind::saved && event.step == step;
      num_trials -= is_saved ? 1 : 0;
    }
  }
  copy_live_folder(from, to);
}

}  // namespace spillway::testing
