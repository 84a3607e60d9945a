#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/support/run/training_run.h"

/// Tiny trials that differ only in their seeds.
namespace spillway::testing {

inline constexpr std::int64_t kSeededSteps = 20;

inline TrialConfig trial_of_seed(std::uint64_t seed) {
  TrialConfig trial = tiny_trial("seed " + std::to_string(seed));
  trial.train.seed = seed;
  trial.train.max_steps = kSeededSteps;
  return trial;
}

/// The result of the same trial in its own session.
inline const TrialResult& alone(std::uint64_t seed) {
  static std::map<std::uint64_t, TrialResult> results;
  const auto [place, is_new] = results.try_emplace(seed);
  if (is_new) place->second = train(session_of(1, kAmple), trial_of_seed(seed)).trials[0];
  return place->second;
}

}  // namespace spillway::testing
