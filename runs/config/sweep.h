#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runs/config/config.h"

namespace spillway {

struct DataSplit;  // spillway/data_source.h

/// One point of a sweep.
struct Trial {
  std::string name;  ///< "learning_rate=3e-3,hidden_size=128"; also a safe file name
  std::vector<std::pair<std::string, std::string>> parameters;  ///< swept (key, value as text)
  YamlNode tree;                                                ///< with the swept values
  RunConfig config;
  std::shared_ptr<const DataSplit> data{};  ///< if it is open already
};

/// Whether the length of the trial is given in epochs and not known yet.
inline bool has_epochs(const Trial& trial) { return trial.config.num_train_epochs > 0; }

/// Whether the model is in a file.
inline bool has_model_file(const Trial& trial) { return trial.config.family == ModelFamily::torch; }

/// Checks what early stopping needs of all trials, steps enough and the metric at rungs, and counts
/// brackets.
void check_early_stopping(std::vector<Trial>& trials, const YamlNode& tree, Findings& findings);

/// Checks that all trials have the metric of the sweep. Models in files must have been read.
void check_metric(std::vector<Trial>& trials, const YamlNode& tree, Findings& findings);

/// method: grid: every combination of the swept values, the last key varying fastest, up to
/// run_cap; method: random: run_cap draws, a function of sweep.seed, the trial's number and the
/// key; without parameters, one trial with the name of the run. Then those of `sweep.trials`.
/// Names do not include constants. Problems go into `findings`; there is always at least one trial.
/// If trials have epochs, the caller finds their steps and calls check_early_stopping(); if models
/// are in files, it reads them and calls check_metric().
std::vector<Trial> expand_trials(const YamlNode& tree, Findings& findings);

}  // namespace spillway
