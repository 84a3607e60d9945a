#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runs/config/config.h"

namespace spillway {

/// One point of a sweep.
struct Trial {
  std::string name;  ///< "learning_rate=3e-3,hidden_size=128"; also a safe file name
  std::vector<std::pair<std::string, std::string>> parameters;  ///< swept (key, value as text)
  YamlNode tree;                                                ///< with the swept values put in
  RunConfig config;
};

/// Adds a finding if early stopping would compare no trials.
void check_rungs(const std::vector<Trial>& trials, const YamlNode& tree, Findings& findings);

/// method: grid: every combination of the swept values, the last key running fastest, up to
/// run_cap; method: random: run_cap draws, a function of sweep.seed, the trial's number and the
/// key; without parameters, one trial with the name of the run. Then those of `sweep.trials`.
/// Constants are not named. What is wrong goes into `findings`; there is always a trial. If trials
/// have epochs, the caller finds their steps and calls check_rungs().
std::vector<Trial> expand_trials(const YamlNode& tree, Findings& findings);

}  // namespace spillway
