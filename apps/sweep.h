#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/config.h"

namespace spillway {

/// One point of a sweep.
struct Trial {
  std::string name;  ///< "learning_rate=3e-3,hidden_size=128"; also a safe file name
  std::vector<std::pair<std::string, std::string>> parameters;  ///< swept (key, value as text)
  YamlNode tree;                                                ///< with the swept values put in
  RunConfig config;
};

/// Every combination of the swept values, the last key running fastest; without a sweep, one trial
/// with the name of the run. What is wrong goes into `findings`; there is always a trial.
std::vector<Trial> expand_trials(const YamlNode& tree, Findings& findings);

}  // namespace spillway
