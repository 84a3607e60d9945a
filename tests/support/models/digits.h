#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace spillway::testing {

inline constexpr const char* kNoDigits =
    "`bash scripts/data.sh digits` fetches what this test reads";

/// The file of handwritten digits: from scripts/data.sh, or named by SPILLWAY_DIGITS.
inline std::optional<std::string> digits_file() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  std::string cache = variable("XDG_CACHE_HOME");
  if (cache.empty()) cache = variable("HOME") + "/.cache";
  std::string file = variable("SPILLWAY_DIGITS");
  if (file.empty()) file = cache + "/spillway/scikit-learn-1.6.1/digits.csv";
  return std::filesystem::exists(file) ? std::optional(file) : std::nullopt;
}

}  // namespace spillway::testing
