#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "spillway/trial_config.h"

namespace spillway {

/// Makes what a session trains out of what a configuration says. Trials that read the same data
/// share it.
class TrialFactory {
 public:
  /// What is wrong goes into `findings`; the result counts only where there are none.
  TrialConfig make(const Trial& trial, Findings& findings);

 private:
  std::shared_ptr<const DataSplit> data(const RunConfig& config);

  std::map<std::tuple<DataConfig, std::int64_t, std::int64_t>, std::shared_ptr<const DataSplit>>
      opened_;
};

/// Notes an error of the library at the place of the trial's document that it speaks of.
void note(const ConfigError& error, const YamlNode& tree, Findings& findings);

/// Runs `step` and notes so what it throws as ConfigError.
void run_noting(const YamlNode& tree, Findings& findings, const std::function<void()>& step);

}  // namespace spillway
