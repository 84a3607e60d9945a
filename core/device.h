#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/units.h"

namespace spillway {

/// A point in a queue's order. Copyable handle; the default one has already happened.
///
/// CPU: a flag with waiters. CUDA: a cudaEvent_t. Both: `wait` blocks a host thread, Queue::wait
/// orders queues without one.
class Event {
 public:
  struct State {
    virtual ~State() = default;
    virtual bool done() const = 0;
    virtual void wait() const = 0;
  };
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool done() const { return !state_ || state_->done(); }
  void wait() const {
    if (state_) state_->wait();
  }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;  // shared: recorder and waiters end in any order
};

/// An ordered queue of work on a device. Calls return at once; work runs in order of the calls.
/// Thread-safe. The destructor waits for everything enqueued. A queue with nothing to do, or one
/// that waits, uses no CPU.
class Queue {
 public:
  virtual ~Queue() = default;
  /// Runs `work` on the queue's host thread. On CPU that is the work; a CUDA body launches on the
  /// queue's stream, and the queue goes on when the stream got there. `work` must not throw; it
  /// is destroyed before what is enqueued after it runs.
  virtual void enqueue(std::function<void()> work) = 0;
  /// Copies between host and device, or within one of them. The ranges do not overlap, and both
  /// stay valid until done.
  virtual void copy_async(void* to, const void* from, std::size_t bytes) = 0;
  /// An event that happens when all work enqueued so far has finished.
  virtual Event record() = 0;
  /// Work enqueued from here on starts after `event`, of any queue of any device.
  virtual void wait(const Event& event) = 0;
  /// Calls `done` from a thread of the device once all work enqueued so far has finished. `done`
  /// may enqueue, but neither block nor destroy the device; it must not throw.
  virtual void notify(std::function<void()> done) = 0;
};

/// Memory that a device handed out; freed at the end of this object, before or after the device's.
/// Aligned to kPage.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() const = 0;
  virtual Bytes size() const = 0;
};

/// What runs on a device may allocate beyond the planned ranges: activations. The meter counts
/// them for the running op against what was reserved for it; before the first op that is nothing.
/// Thread-safe.
class ActivationMeter {
 public:
  virtual ~ActivationMeter() = default;
  /// Starts an op: at most `reserved` bytes in use from here on, those of earlier ops included.
  /// Resets the peak to what is in use.
  virtual void begin_op(Bytes reserved) = 0;
  /// Throws OutOfMemory, with nothing charged, where more than the reserved bytes would be in use.
  virtual void charge(Bytes bytes) = 0;
  /// Gives back charged bytes, from any thread, during any op.
  virtual void discharge(Bytes bytes) noexcept = 0;
  virtual Bytes in_use() const = 0;
  virtual Bytes peak_since_begin() const = 0;
};

/// A device: a hard byte budget, three ordered queues, memory. One body a kind. The destructor
/// waits for everything enqueued; what it waits for may not enqueue more.
class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& kind() const = 0;
  virtual Bytes budget() const = 0;

  virtual Queue& compute() = 0;
  virtual Queue& host_to_device() = 0;
  virtual Queue& device_to_host() = 0;

  /// An arena for planned ranges. Throws OutOfMemory where live arenas would exceed the budget.
  virtual std::unique_ptr<DeviceMemory> allocate(Bytes bytes) = 0;
  /// Host memory that this device's copy queues reach at full speed (pinned, for CUDA).
  virtual std::unique_ptr<DeviceMemory> allocate_host(Bytes bytes) = 0;

  virtual ActivationMeter& activations() = 0;
};

/// A logical CPU device: one thread computes, two copy, a hard budget of `budget` bytes. With
/// `link_bytes_per_s` above 0, each copy queue is as slow as a link of that rate.
std::unique_ptr<Device> make_cpu_device(const std::string& name, Bytes budget,
                                        Bytes link_bytes_per_s = 0);

}  // namespace spillway
