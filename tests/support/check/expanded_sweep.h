#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runs/config/sweep.h"
#include "tests/support/check/config_text.h"

namespace spillway::testing {

using Texts = std::vector<std::string>;

struct Expanded {
  std::vector<Trial> trials;
  Texts problems;
};

inline Expanded expand(const std::string& text) {
  Findings findings;
  auto trials = expand_trials(parse_yaml(text), findings);
  return {std::move(trials), messages(findings)};
}

/// Each line is one entry of sweep.parameters; the first is on line 6. `settings` are the lines
/// after them.
inline Expanded sweep(const Texts& entries, const std::string& document = kShortestConfig,
                      const Texts& settings = {}) {
  std::string text = document + "sweep:\n  parameters:\n";
  for (const auto& entry : entries) text += "    " + entry + "\n";
  for (const auto& setting : settings) text += "  " + setting + "\n";
  return expand(text);
}

inline Expanded random_sweep(const Texts& entries, int run_cap,
                             const std::string& document = kShortestConfig) {
  return sweep(entries, document, {"method: random", "run_cap: " + std::to_string(run_cap)});
}

inline Texts names(const std::vector<Trial>& trials) {
  Texts all;
  for (const auto& trial : trials) all.push_back(trial.name);
  return all;
}

/// A trial's configuration with its drawn values, which to_yaml() omits.
inline std::string own_values(RunConfig config) {
  for (SweepParameter& parameter : config.sweep.parameters) parameter.base.reset();
  return to_yaml(config);
}

}  // namespace spillway::testing
