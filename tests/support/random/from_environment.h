#pragma once

#include <cstdint>
#include <cstdlib>

namespace spillway::testing {

/// The value of an environment variable, or `otherwise` without it.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

/// Sanitizers take about ten times as long.
#ifdef SPILLWAY_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// Runs of a campaign, times SPILLWAY_CAMPAIGN, which is 1 unless set.
inline std::uint64_t campaign_size(std::uint64_t usual) {
  return usual * from_environment("SPILLWAY_CAMPAIGN", 1);
}

/// The same with fewer runs under a sanitizer.
inline std::uint64_t campaign_size(std::uint64_t usual, std::uint64_t sanitized) {
  return campaign_size(kSanitized ? sanitized : usual);
}

}  // namespace spillway::testing
