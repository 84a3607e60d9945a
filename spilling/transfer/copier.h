#pragma once

#include <chrono>
#include <functional>

#include "core/device/device.h"
#include "spillway/units.h"

namespace spillway {

using Clock = std::chrono::steady_clock;

/// Copies bytes from and to one device. Copies from the host, to it, and from other devices are
/// each in order.
class Copier {
 public:
  explicit Copier(Device& device) : device_(device) {}

  using Finished = std::function<void(Clock::time_point begin, Clock::time_point end)>;
  /// All return at once with an event that happens when the bytes have arrived; then a thread of
  /// the device calls `finished`. Both ranges stay valid until then.
  Event to_device(std::byte* device, const std::byte* host, Bytes bytes, Finished finished);
  /// `link`: see Queue::copy_over(); null: there is none.
  Event from_device(std::byte* device, const std::byte* other, Bytes bytes, Link* link,
                    Finished finished);
  Event to_host(std::byte* host, const std::byte* device, Bytes bytes, Finished finished);

 private:
  Event copy(Queue& queue, Link* link, std::byte* to, const std::byte* from, Bytes bytes,
             Finished finished);

  Device& device_;
};

}  // namespace spillway
