#include <algorithm>
#include <string>
#include <vector>

#include "runs/config/config.h"
#include "runs/config/sweep.h"
#include "spillway/error.h"
#include "tests/fuzz/input.h"

namespace {

using namespace spillway;

/// Thousands of trials would reveal no more than a few.
bool is_small(const SweepConfig& sweep) {
  constexpr std::size_t kMost = 2;
  if (sweep.method == SweepMethod::random) return sweep.run_cap <= static_cast<std::int64_t>(kMost);
  std::size_t trials = 1;
  for (const auto& parameter : sweep.parameters) {
    trials *= std::max<std::size_t>(1, parameter.values.size());
    if (trials > kMost) return false;
  }
  return true;
}

/// With the values that the trial drew.
std::string own_values(RunConfig config) {
  for (SweepParameter& parameter : config.sweep.parameters) parameter.base.reset();
  return to_yaml(config);
}

/// A configuration without findings round-trips: it makes the same trials.
void write_again(const std::vector<Trial>& trials) {
  const std::string text = to_yaml(trials.front().config);
  Findings findings;
  const auto again = expand_trials(parse_yaml(text), findings);
  testing::require(findings.empty(), "what is written has no findings");
  testing::require(to_yaml(again.front().config) == text, "what is written is read");
  testing::require(again.size() == trials.size(), "what is written makes as many trials");
  for (std::size_t t = 0; t < trials.size(); ++t) {
    testing::require(own_values(again[t].config) == own_values(trials[t].config),
                     "what is written makes the same trials");
  }
}

void read(const std::string& text) {
  const YamlNode tree = parse_yaml(text);
  Findings findings;
  YamlSchema schema(findings);
  if (!is_small(read_config(tree, schema).sweep)) return schema.report_unknown();
  Findings of_trials;
  const auto trials = expand_trials(tree, of_trials);
  if (of_trials.empty()) write_again(trials);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    read(testing::to_string(data, size));
  } catch (const ConfigError&) {
  }
  return 0;
}
