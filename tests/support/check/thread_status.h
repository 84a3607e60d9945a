#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace spillway::testing {

/// What the system reports about a thread of this process.
struct ThreadStatus {
  char state = 'S';         ///< R: it computes, or is ready to
  std::int64_t sleeps = 0;  ///< how often it has gone to sleep
};

inline ThreadStatus status_of(const std::filesystem::path& task) {
  ThreadStatus status;
  std::ifstream file(task / "status");
  for (std::string word; file >> word;) {
    if (word == "State:") file >> status.state;
    if (word == "voluntary_ctxt_switches:") file >> status.sleeps;
  }
  return status;
}

/// Fails unless the thread soon goes to sleep and then stays asleep: a thread that spins never
/// sleeps, and one that polls wakes up meanwhile.
inline void expect_asleep(pid_t thread) {
  const auto task = std::filesystem::path("/proc/self/task") / std::to_string(thread);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const ThreadStatus before = status_of(task);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const ThreadStatus after = status_of(task);
    if (before.state == 'S' && after.state == 'S' && before.sleeps == after.sleeps) return;
    ASSERT_LT(std::chrono::steady_clock::now(), give_up) << "the thread does not rest";
  }
}

}  // namespace spillway::testing
