#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "scheduler/engine/action.h"
#include "scheduler/plan/program.h"
#include "spilling/tiers/homes.h"
#include "spillway/ids.h"
#include "trainer/runtime/kept_graphs.h"

namespace spillway {

/// A compute op with every buffer resolved to device memory.
struct OpCall {
  JobId job;
  Device* device = nullptr;
  std::int64_t step = 0;
  std::shared_ptr<const JobPlan> plan;  // shared: the call may outlive the job's use of it
  const Program* program = nullptr;     ///< of the plan
  int unit = 0, op = 0;
  boost::unordered_flat_map<int, std::byte*> buffers;  ///< on the device, by number
  /// Host memory for the numbers that the op writes, until they are kept: OpSpec::num_numbers.
  std::vector<double*> numbers;
  bool has_graph = false;        ///< see StartOp
  KeptGraphs* graphs = nullptr;  ///< of the device

  const UnitSpec& unit_spec() const { return program->units[at(unit)]; }
  const OpSpec& op_spec() const { return program->ops[at(op)]; }
  /// Where its graph is kept, and how many bytes it may take.
  BufferRef graph() const { return {job, op_spec().graph}; }
  Bytes graph_bytes() const { return plan->layout.buffers[at(op_spec().graph)].bytes; }
  /// The address of one of its buffers on the device.
  std::byte* memory(int buffer) const { return buffers.at(buffer); }
};

/// Work of the host pool on a job's homes.
struct HostCall {
  JobId job;
  std::int64_t step = 0;
  std::shared_ptr<const JobPlan> plan;
  const Program* program = nullptr;  ///< of the plan
  int op = 0;
  const Home* home = nullptr;
};

/// Computes ops; the shell decides when and where. Throws on failure. Device threads and host
/// workers call it concurrently, but never two calls of one job that the step program orders.
class OpRunner {
 public:
  using Keep = std::function<void()>;
  virtual ~OpRunner() = default;
  /// Writes the initial state of a job into its zeroed home, except what another job has written.
  virtual void admit(JobId job, const Home& home) = 0;
  /// Memory that has the content of a shared block of the job already; null: none.
  virtual std::shared_ptr<std::byte> find(JobId, const SharedBlock&) { return nullptr; }
  /// Changes only the device's memory: if the device is given up meanwhile, the op has no effect.
  /// Returns a function that keeps its other results, such as a loss. The shell's thread calls it
  /// before anything that depends on the op begins. It must not throw; empty: nothing to keep.
  /// With OpCall::has_graph, a forward may leave its graph in OpCall::graphs, and a backward takes
  /// it out; if it is not there, the backward computes the layers again.
  virtual Keep run_op(const OpCall& call) = 0;
  virtual void run_host_op(const HostCall& call) = 0;
  /// Begins a host op that exchanges data with other hosts. `ended` is called once, on any thread
  /// or before this returns: with true if another host is lost or has dropped the step.
  using Ended = std::function<void(bool is_lost)>;
  virtual void exchange(const HostCall&, const Ended& ended) { ended(/*is_lost=*/true); }
  /// Nothing of the job runs any more; its home is freed when this returns. May wait. If it throws,
  /// the job has failed.
  virtual void release(JobId, JobEnd) {}
  /// Prepares the compute thread of a device that is about to join for its first op.
  virtual void warm(Device& device) = 0;
};

/// Threads for host ops. Thread-safe. The destructor waits for everything submitted.
class HostPool {
 public:
  virtual ~HostPool() = default;
  /// Returns at once. Work begins in the order of submission; it must not throw. `grains`: the
  /// most threads that it shares its work among.
  virtual void submit(int grains, std::function<void()> work) = 0;
};

}  // namespace spillway
