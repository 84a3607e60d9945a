#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "scheduler/action.h"
#include "scheduler/engine_state.h"
#include "scheduler/policy.h"

namespace spillway {

struct EngineConfig {
  std::vector<Bytes> device_budgets;
  Bytes host_budget = 0;
  std::shared_ptr<const Policy> policy;
  bool double_buffer = true;  ///< false: a load starts only when nothing computes on the device
};

/// List-schedules the step programs of all jobs under the budgets: one pure state machine. No
/// clock, thread, I/O, lock or random device inside; the same events give the same actions.
/// Copyable. Every call appends the actions to start, in order, to `out`.
///
/// Why it cannot deadlock: whatever outlives an op has a home reserved at admission, so a device
/// can always be emptied; a unit reserves weights, sums, activations and the room of its largest
/// op at once; an op that fits an empty device therefore runs. What is prefetched can be dropped.
class Engine {
 public:
  explicit Engine(EngineConfig config);

  /// A job whose plan fits at least one device, and whose home fits the host budget.
  void submit(JobId job, std::shared_ptr<const JobPlan> plan, std::vector<Action>& out);
  void on_done(const Done& done, std::vector<Action>& out);
  /// Ends a job after its running actions.
  void stop(JobId job, std::vector<Action>& out);

  bool idle() const { return in_flight_.empty(); }
  bool all_ended() const;
  const JobTable& job(JobId id) const { return jobs_.at(id); }
  const DeviceTable& device(DeviceId id) const { return devices_[id.index()]; }
  std::size_t num_devices() const { return devices_.size(); }
  Bytes host_used() const { return host_used_; }
  Bytes host_peak() const { return host_peak_; }
  /// Compute that a job has left, in seconds.
  double remaining_s(const JobTable& job) const;

  /// Throws std::logic_error where a table breaks an invariant: budgets, leases, versions.
  void check_integrity() const;

 private:
  enum class Room { ready, wait, never };
  /// What has to be on a device at once.
  struct Request {
    std::vector<BufferRef> place;  ///< no copy there yet
    std::vector<BufferRef> keep;   ///< copies that must stay
    Bytes workspace = 0;
    std::span<const Bytes> op_area;  ///< pieces that must still find room afterwards
    std::vector<Bytes> later;        ///< and these, once only `keep` and `place` are left
    Bytes later_workspace = 0;
    RangeAllocator::End end = RangeAllocator::End::low;
    bool may_drop_next = false;  ///< the prefetched unit's weights may go
  };

  // engine.cpp: jobs and programs
  void admit_waiting();
  void begin_program(JobId id);
  void host_op_done(JobId id, int op, double now_s);
  void host_dependency_done(JobId id, int op);
  void unit_drained(JobId id, int unit);
  void count_finished(JobId id);
  void end_job(JobId id, JobEnd end, const std::string& reason);
  void finish_if_quiet(JobId id);
  void schedule();

  // engine_devices.cpp: what runs where
  void drive(DeviceId id);
  bool choose(DeviceId id, std::optional<UnitRef>& slot);
  bool may_run(DeviceId id, JobId job, int lane) const;
  Candidate candidate(DeviceId id, JobId job, int lane) const;
  void claim(DeviceId id, UnitRef unit);
  bool steal(DeviceId thief);
  bool reserve_unit(DeviceId id);
  bool same_unit(ActionId a, ActionId b) const;
  bool start_op(DeviceId id);
  Room make_op_room(DeviceId id, const OpSpec& op, JobId job);
  bool fetch_homes(DeviceId id, const OpSpec& op, JobId job);
  void prefetch(DeviceId id);
  void op_done(const InFlight& op, const Done& done);
  void unit_done(JobId id, int unit, double now_s);
  void account_op(const InFlight& op, const Done& done);

  // engine_memory.cpp: bytes on devices
  Room make_room(DeviceId id, const Request& request);
  bool place_all(DeviceId id, const Request& request);
  bool op_area_fits(DeviceId id, const Request& request) const;
  bool later_fits(DeviceId id, const Request& request) const;
  bool evict_one(DeviceId id, const Request& request);
  bool is_next_weight(const DeviceTable& device, BufferRef ref) const;
  void drop_weights(DeviceId id, JobId job, int unit);
  double next_use(BufferRef ref) const;
  void load(DeviceId id, BufferRef ref);
  bool home_is_busy(BufferRef ref) const;
  void write_back(DeviceId id, BufferRef ref, bool doom);
  void drop(DeviceId id, BufferRef ref);
  void drop_everywhere(BufferRef ref);
  void drop_all_idle(DeviceId id, const std::vector<BufferRef>& keep);
  void copy_done(const InFlight& copy, const Done& done);
  void note_use(DeviceId id);
  Bytes reserved_workspace(const DeviceTable& device) const;

  const UnitSpec& spec(UnitRef ref) const { return jobs_.at(ref.job).program->units[at(ref.unit)]; }
  UnitState& state(UnitRef ref) { return jobs_.at(ref.job).units[at(ref.unit)]; }
  const BufferSpec& buffer_spec(BufferRef ref) const {
    return jobs_.at(ref.job).plan->layout.buffers[at(ref.buffer)];
  }
  BufferState& buffer_state(BufferRef ref) { return jobs_.at(ref.job).buffers[at(ref.buffer)]; }
  DeviceTable& table(DeviceId id) { return devices_[id.index()]; }
  ActionId start(InFlight action);

  EngineConfig config_;
  std::vector<DeviceTable> devices_;
  std::map<JobId, JobTable> jobs_;
  std::deque<JobId> waiting_;
  std::map<ActionId, InFlight> in_flight_;
  ActionId last_action_ = 0;
  std::uint64_t claims_ = 0;
  std::uint64_t readiness_ = 1;  ///< grows whenever a unit may have become ready
  Bytes host_used_ = 0, host_peak_ = 0;
  std::vector<Action>* out_ = nullptr;  // during a call only
};

/// The engine's counters, for results.
struct EngineSnapshot {
  std::vector<DeviceCounters> devices;
  Bytes host_peak = 0;
};
EngineSnapshot snapshot_of(const Engine& engine);

}  // namespace spillway
