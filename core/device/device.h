#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/device/memory_split.h"
#include "spillway/device_config.h"
#include "spillway/units.h"

namespace spillway {

/// A point in a queue's order. Copyable handle; the default one has already happened.
///
/// CPU: a flag with waiters. CUDA: a cudaEvent_t. Both: `wait` blocks a host thread, Queue::wait
/// orders queues without one. Of two that happened one after the other, either may say so first.
class Event {
 public:
  struct State {
    virtual ~State() = default;
    virtual bool done() const = 0;
    virtual void wait(const std::stop_token& give_up) const = 0;
  };
  Event() = default;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  bool done() const { return !state_ || state_->done(); }
  /// Returns early where `give_up` is asked to stop.
  void wait(const std::stop_token& give_up = {}) const {
    if (state_) state_->wait(give_up);
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
  /// Runs `work` on the queue's host thread. On CPU that is the work. On a GPU it gives work to
  /// stream(), and the thread goes on at once: what it does itself is ordered with the work of this
  /// thread, not with that of the stream. `work` must not throw; it is destroyed before what is
  /// enqueued after it runs.
  virtual void enqueue(std::function<void()> work) = 0;
  /// The cudaStream_t of the queue, for what is enqueued (core/device/kernels.h); null on CPU.
  virtual void* stream() const { return nullptr; }
  /// Copies between host and device, within one of them, or to the queue's device from another of
  /// its kind. The ranges do not overlap, and both stay valid until done.
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
  /// Memory of the device for `bytes` that were charged, from a dedicated pool; null: they
  /// are served by the system. Throws OutOfMemory where no hole is large enough.
  virtual void* place(Bytes) { return nullptr; }
  /// Gives back what place(bytes) returned, from any thread, during any op.
  virtual void remove(void*, Bytes) noexcept {}
};

/// A device: a hard byte budget, three ordered queues, memory. One body a kind. The destructor
/// waits for everything enqueued; what it waits for may not enqueue more.
class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;
  virtual const std::string& kind() const = 0;
  /// What bits and costs depend on: the kind, and of a GPU its model.
  virtual std::string exact_kind() const { return kind(); }
  /// May shrink: what is handed out then stays until it is given back.
  virtual Bytes budget() const = 0;
  /// How much of it allocate() has for planned ranges.
  virtual const MemorySplit& split() const = 0;
  /// The number of the GPU; -1: it computes on the processor.
  virtual int gpu() const { return -1; }
  /// How many times longer its compute takes than that of another device of its kind.
  virtual double slowdown() const = 0;
  /// How fast its copies are known to be, each way; 0: not known.
  virtual Bytes link_bytes_per_s() const = 0;

  virtual Queue& compute() = 0;
  virtual Queue& host_to_device() = 0;
  virtual Queue& device_to_host() = 0;

  /// An arena for planned ranges. Throws OutOfMemory where live arenas would exceed the budget.
  virtual std::unique_ptr<DeviceMemory> allocate(Bytes bytes) = 0;
  /// Host memory that this device's copy queues reach at full speed (pinned, for CUDA).
  virtual std::unique_ptr<DeviceMemory> allocate_host(Bytes bytes) = 0;

  virtual ActivationMeter& activations() = 0;

  /// Before each op, on the compute queue's thread: throws DeviceLost where the device no longer
  /// works. One that does not answer may block until it is abandoned.
  virtual void begin_op() = 0;
  /// Throws DeviceLost where the device has failed, so that nothing done there can be relied on.
  /// Of work that has ended it then knows. Any thread.
  virtual void check() = 0;
  /// Gives the device up for good, without waiting for its compute: work, copies and waits that
  /// have not begun are skipped, then and later; a copy in progress has finished when this
  /// returns. Events happen and notifications are made, after what still computes. Any thread.
  virtual void abandon() = 0;
};

/// How a CPU device differs from the thread that it is.
struct CpuSwitches {
  Bytes link_bytes_per_s = 0;  ///< above 0: each copy queue is as slow as a link of that rate
  double slowdown = 1;         ///< work of the compute queue takes so many times longer
  DeviceFault fault;
  MemorySplit split;
};

/// A logical CPU device: one thread computes, two copy, a hard budget of `budget` bytes.
std::unique_ptr<Device> make_cpu_device(const std::string& name, Bytes budget,
                                        const CpuSwitches& switches = {});

/// A GPU that the driver shows.
struct GpuInfo {
  std::string name;
  Bytes memory = 0, free = 0;
  std::string problem = {};  ///< for whoever finds that it cannot be used
};
struct GpuList {
  std::vector<GpuInfo> gpus;  ///< by index
  std::string why_none;       ///< and what to do about it
};
GpuList list_gpus();

/// `budget` bytes of a GPU, taken at once; several devices may share one. Throws ConfigError
/// (`kind`, `index`, `memory`) where there is no driver, or too old a one, no such GPU, or no such
/// memory.
std::unique_ptr<Device> make_cuda_device(const std::string& name, int index, Bytes budget,
                                         const MemorySplit& split = {});

}  // namespace spillway
