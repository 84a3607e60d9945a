#pragma once

#include <cstdint>
#include <cstdlib>

namespace spillway::testing {

/// The number that a variable of the environment holds, or `otherwise` without it.
inline std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::strtoull(value, nullptr, 10) : otherwise;
}

}  // namespace spillway::testing
