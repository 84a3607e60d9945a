#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spilling/tiers/device_arena.h"
#include "spilling/transfer/copier.h"
#include "trainer/runtime/kept_graphs.h"
#include "trainer/runtime/watchdog.h"

namespace spillway {

/// Host memory to which ops of a device write numbers. Grows to the largest amount in use at once.
class Numbers {
 public:
  explicit Numbers(Device& device) : device_(device) {}
  double* take() {
    if (free_.empty()) {
      auto* const first =
          reinterpret_cast<double*>(pages_.emplace_back(device_.allocate_host(kPage))->data());
      for (std::size_t i = 0; i < kPage / sizeof(double); ++i) free_.push_back(first + i);
    }
    double* const number = free_.back();
    free_.pop_back();
    return number;
  }
  void give_back(double* number) { free_.push_back(number); }

 private:
  Device& device_;
  std::vector<std::unique_ptr<DeviceMemory>> pages_;
  std::vector<double*> free_;
};

/// The shell's state of a device. Only for the shell's thread, except for the graphs.
struct DevicePart {
  /// `is_gone`: the device left before, and nothing is allocated on it.
  explicit DevicePart(Device& d, bool is_gone = false)
      : device(&d),
        budget(d.budget()),
        arena(is_gone ? nullptr : std::make_unique<DeviceArena>(d)),
        copier(d),
        numbers(d),
        leaves(is_gone),
        gone(is_gone) {}

  Device* device;
  Bytes budget;                        ///< at the time when it joined
  std::unique_ptr<DeviceArena> arena;  ///< freed once nothing can access it any more
  Copier copier;
  Numbers numbers;
  KeptGraphs graphs;
  std::unique_ptr<Watchdog> watchdog;
  int running = 0;   ///< started actions that have not ended, even if they were reported as lost
  int expected = 0;  ///< the part of them that is not reported
  double planned_s = 0;  ///< planned duration of these
  bool leaves = false;   ///< removed or lost
  bool gone = false;     ///< it has left
  std::string why;       ///< why it leaves
};

}  // namespace spillway
