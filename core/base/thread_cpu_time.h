#pragma once

#include <chrono>
#include <ctime>

namespace spillway {

/// For how long the calling thread has computed.
inline std::chrono::duration<double> thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace spillway
