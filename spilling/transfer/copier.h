#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "core/device/device.h"
#include "spillway/units.h"

namespace spillway {

using Clock = std::chrono::steady_clock;

/// Moves bytes between the host tier and one device, each direction in order. Counted.
class Copier {
 public:
  explicit Copier(Device& device) : device_(device) {}

  using Finished = std::function<void(Clock::time_point begin, Clock::time_point end)>;
  /// Both return at once with an event that happens when the bytes are there; `finished` is then
  /// called from a thread of the device. Both ranges stay valid until then.
  Event to_device(std::byte* device, const std::byte* host, Bytes bytes, Finished finished);
  Event to_host(std::byte* host, const std::byte* device, Bytes bytes, Finished finished);

  Bytes to_device_bytes() const { return to_device_bytes_; }
  Bytes to_host_bytes() const { return to_host_bytes_; }

 private:
  Event copy(Queue& queue, std::byte* to, const std::byte* from, Bytes bytes, Finished finished);

  Device& device_;
  std::atomic<Bytes> to_device_bytes_ = 0, to_host_bytes_ = 0;
};

}  // namespace spillway
