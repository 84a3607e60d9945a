#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace spillway {

/// Waits between two looks at what another host does: a millisecond at first, because hosts that
/// meet again answer at once, then twice as long each time, up to `longest`.
class Pause {
 public:
  explicit Pause(std::chrono::milliseconds longest = std::chrono::milliseconds(10))
      : longest_(longest) {}

  std::chrono::milliseconds longest() const { return longest_; }

  void operator()() {
    std::this_thread::sleep_for(next_);
    next_ = std::min(2 * next_, longest_);
  }

 private:
  const std::chrono::milliseconds longest_;
  std::chrono::milliseconds next_{1};
};

}  // namespace spillway
