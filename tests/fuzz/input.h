#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

/// A fuzz target, one of the files beside this one, called by libFuzzer and corpus_main.cpp. The
/// target must survive any bytes; only documented errors are caught.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace spillway::testing {

inline std::string to_string(const std::uint8_t* data, std::size_t size) {
  return size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(data), size);
}

/// Aborts if a property fails, so the input becomes a finding.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", promise);
  std::abort();
}

}  // namespace spillway::testing
