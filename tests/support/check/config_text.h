#pragma once

#include <string>
#include <vector>

#include "runs/config/findings.h"

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

}  // namespace spillway::testing
