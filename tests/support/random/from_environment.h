#pragma once

#include <cstdint>
#include <cstdlib>

namespace spillway::testing {

/// The number that a variable of the environment holds, or `otherwise` without it.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

/// Runs of a campaign: `usual` of them, times SPILLWAY_CAMPAIGN, which is 1 unless set.
inline std::uint64_t campaign_size(std::uint64_t usual) {
  return usual * from_environment("SPILLWAY_CAMPAIGN", 1);
}

}  // namespace spillway::testing
