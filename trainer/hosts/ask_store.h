#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "spillway/error.h"
#include "spillway/session_config.h"
#include "trainer/c10d/quiet_c10d.h"

namespace spillway {

/// HostsConfig::timeout_s
inline std::chrono::milliseconds limit_of(const HostsConfig& config) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(config.timeout_s * 1000));
}

/// Runs calls of the store. `endpoint`: for the message of HostLost if it does not answer.
template <typename Work>
auto ask_store(const std::string& endpoint, const Work& work) {
  const QuietC10d quiet;
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw HostLost(
        fmt::format("host 0 is lost or has stopped: its store at {} does not answer ({}); its "
                    "own output says why",
                    endpoint, first_line(error)));
  }
}

}  // namespace spillway
