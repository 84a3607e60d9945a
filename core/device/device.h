#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "core/device/link.h"
#include "core/device/memory_split.h"
#include "spillway/device_config.h"
#include "spillway/units.h"

namespace spillway {

/// A point in a queue's order. Copyable handle; the default one has already happened.
///
/// CPU: a flag with waiters. CUDA: a cudaEvent_t. `wait` blocks a host thread, Queue::wait orders
/// queues without one. Two events may be reported in either order.
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
  /// Returns early if `give_up` is requested to stop.
  void wait(const std::stop_token& give_up = {}) const {
    if (state_) state_->wait(give_up);
  }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;  // shared: recorder and waiters end in any order
};

/// An ordered queue of work on a device. Calls return at once; work runs in the order of calls.
/// Thread-safe. The destructor waits for everything enqueued. An empty or waiting queue uses no
/// CPU.
class Queue {
 public:
  virtual ~Queue() = default;
  /// Runs `work` on the queue's host thread. On a GPU, `work` launches kernels on stream() and does
  /// not wait for them: the order holds for the thread, and separately for the stream. `work` must
  /// not throw; it is destroyed before later work runs.
  virtual void enqueue(std::function<void()> work) = 0;
  /// The queue's cudaStream_t, for enqueued work (core/device/kernels.h); null on CPU.
  virtual void* stream() const { return nullptr; }
  /// Copies between host and device, within one of them, or from another device of the same kind.
  /// The ranges do not overlap, and both stay valid until done.
  virtual void copy_async(void* to, const void* from, std::size_t bytes) = 0;
  /// The same over a link that CPU devices imitate, which outlives the copy; a GPU has its own.
  virtual void copy_over(Link&, void* to, const void* from, std::size_t bytes) {
    copy_async(to, from, bytes);
  }
  /// An event that happens when all work enqueued so far has finished.
  virtual Event record() = 0;
  /// Later work starts after `event`, which may belong to any queue of any device.
  virtual void wait(const Event& event) = 0;
  /// Calls `done` from a thread of the device once all work enqueued so far has finished. `done`
  /// may enqueue, but neither block nor destroy the device; it must not throw.
  virtual void notify(std::function<void()> done) = 0;
};

/// Memory of a device, aligned to kPage. The destructor frees it; it may outlive the device.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() const = 0;
  virtual Bytes size() const = 0;
};

/// Counts the activations that the running op allocates beside planned ranges, and limits them to
/// the op's reservation. Before the first op nothing is reserved. Thread-safe.
class ActivationMeter {
 public:
  virtual ~ActivationMeter() = default;
  /// Starts an op: from now on at most `reserved` bytes may be in use, including those of earlier
  /// ops. Resets the peak to the bytes in use.
  virtual void begin_op(Bytes reserved) = 0;
  /// Throws OutOfMemory, and then charges nothing, beyond the reserved bytes.
  virtual void charge(Bytes bytes) = 0;
  /// Gives back charged bytes, from any thread, during any op.
  virtual void discharge(Bytes bytes) noexcept = 0;
  virtual Bytes in_use() const = 0;
  virtual Bytes peak_since_begin() const = 0;
  /// Memory of the dedicated activation pool for `bytes` that were charged; null: the system
  /// allocates activations. Throws OutOfMemory if no hole is large enough.
  virtual void* place(Bytes) { return nullptr; }
  /// Gives back what place(bytes) returned, from any thread, during any op.
  virtual void remove(void*, Bytes) noexcept {}
};

/// A device: a hard byte budget, four ordered queues, memory. One implementation per kind. The
/// destructor waits for everything enqueued, which may not enqueue more.
class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;
  virtual const std::string& kind() const = 0;
  /// What bits and costs depend on: the kind, and for a GPU its model.
  virtual std::string exact_kind() const { return kind(); }
  /// May shrink; allocations stay valid.
  virtual Bytes budget() const = 0;
  /// How much of it allocate() has for planned ranges.
  virtual const MemorySplit& split() const = 0;
  /// The number of the GPU; -1: a CPU device.
  virtual int gpu() const { return -1; }
  /// How many times slower it computes than other devices of its kind.
  virtual double slowdown() const = 0;
  /// The known rate of copies in each direction; 0: unknown.
  virtual Bytes link_bytes_per_s() const = 0;

  virtual Queue& compute() = 0;
  virtual Queue& host_to_device() = 0;
  virtual Queue& device_to_host() = 0;
  /// Copies from other devices. Without a link between them (Queue::copy_over()) they share the
  /// link of copies from the host.
  virtual Queue& from_devices() = 0;

  /// An arena for planned ranges. Throws OutOfMemory if live arenas would exceed the budget.
  virtual std::unique_ptr<DeviceMemory> allocate(Bytes bytes) = 0;
  /// Host memory that this device's copy queues reach at full speed (pinned, for CUDA).
  virtual std::unique_ptr<DeviceMemory> allocate_host(Bytes bytes) = 0;

  virtual ActivationMeter& activations() = 0;

  /// Called before each op on the compute queue's thread. Throws DeviceLost if the device has
  /// failed. May block on a hung device until it is abandoned.
  virtual void begin_op() = 0;
  /// Throws DeviceLost if the device has failed, so that its results are invalid. Covers all work
  /// that has ended. Any thread.
  virtual void check() = 0;
  /// Gives up the device for good, without waiting for its compute. Work, copies and waits that
  /// have not begun are skipped, now and later; a copy in progress finishes before this returns.
  /// Events and notifications still happen, after the running compute. Any thread.
  virtual void abandon() = 0;
};

/// Faults and slow hardware that a CPU device imitates.
struct CpuSwitches {
  Bytes link_bytes_per_s = 0;  ///< above 0: the rate of the link with the host, each direction
  double slowdown = 1;         ///< factor on the time of compute
  DeviceFault fault;
  MemorySplit split;
};

/// A logical CPU device: one thread computes, three copy, a hard budget of `budget` bytes.
std::unique_ptr<Device> make_cpu_device(const std::string& name, Bytes budget,
                                        const CpuSwitches& switches = {});

/// A GPU that the driver shows.
struct GpuInfo {
  std::string name;
  Bytes memory = 0, free = 0;
  std::string problem = {};  ///< why it cannot be used; empty: it can, as far as known
};
struct GpuList {
  std::vector<GpuInfo> gpus;  ///< by index
  std::string why_none;       ///< why there are none, and what to do about it
};
GpuList list_gpus();

/// `budget` bytes of a GPU, allocated at once; several devices may share a GPU. Throws ConfigError
/// (`kind`, `index`, `memory`) if the driver is missing or too old, or if there is no such GPU or
/// not enough memory.
std::unique_ptr<Device> make_cuda_device(const std::string& name, int index, Bytes budget,
                                         const MemorySplit& split = {});

}  // namespace spillway
