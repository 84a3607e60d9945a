#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runs/config/config.h"
#include "runs/config/findings.h"
#include "runs/config/yaml_node.h"

namespace spillway::testing {

/// The shortest valid configuration: three lines.
inline const std::string kShortestConfig =
    "devices:\n"
    "  - memory: 1GiB\n"
    "data: {path: text.txt}\n";

/// The problems, one message each, in order of lines.
inline std::vector<std::string> messages(const Findings& findings) {
  std::vector<std::string> all;
  try {
    findings.throw_if_any();
  } catch (const ConfigErrors& errors) {
    for (const auto& error : errors.all) all.emplace_back(error.what());
  }
  return all;
}

/// A configuration without problems.
inline RunConfig read_valid(const std::string& text) {
  Findings findings;
  RunConfig config = read_config(parse_yaml(text), findings);
  EXPECT_EQ(messages(findings), std::vector<std::string>{});
  return config;
}

}  // namespace spillway::testing
