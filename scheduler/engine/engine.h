#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/engine/action.h"
#include "scheduler/engine/dispatcher.h"
#include "scheduler/engine/engine_state.h"
#include "scheduler/engine/placer.h"

namespace spillway {

/// List-schedules the step programs of all jobs under the budgets: one pure state machine. No
/// clock, thread, I/O, lock or random device inside; the same events give the same actions.
/// Copyable. Every call appends the actions to start, in order, to `out`.
///
/// It cannot deadlock: every buffer that outlives an op has a home reserved at admission, so a
/// device can always be emptied; a unit reserves weights, sums, activations and the room of its
/// largest op at once; so an op that fits an empty device runs. Prefetched copies can be dropped.
///
/// The cost of an event does not grow with the number of jobs and devices: it visits the devices
/// that it touches, and devices without work only while there is some; claimable units are sorted.
/// Every change of a device's tables, or of what it waits for, touches the device.
///
/// Devices and plans may change while jobs train: before a step's commit point its weights and
/// moments are untouched, and between two programs the job has no action in flight and no copy on a
/// device. There another plan can take over, and an open step can be dropped and redone anywhere. A
/// job that drops its step starts nothing until its actions in flight have ended.
class Engine : private ResidencyOwner {
 public:
  explicit Engine(EngineConfig config);

  /// Adds a job with `home_bytes` of the host budget, enough for this and all later plans. Blocks
  /// that jobs share count once beside that. If its plan fits no device, it waits for one. Jobs are
  /// submitted in order of their numbers, from 0. A null plan marks a job that has already ended.
  void submit(JobId job, std::shared_ptr<const JobPlan> plan, Bytes home_bytes,
              const JobStart& start, std::vector<Action>& out);
  void on_done(const Done& done, std::vector<Action>& out);
  /// Ends a job after its running actions.
  void stop(JobId job, std::vector<Action>& out);
  /// The same, with the job failed for this reason.
  void fail(JobId job, const std::string& reason, std::vector<Action>& out);

  /// Replaces the job's plan at its next commit point; the latest call counts. If no usable device
  /// fits the present plan, the open step is dropped and redone at once, or, of a job that several
  /// hosts train, once they have agreed (JobInterrupted).
  /// `plan` has the same contract (lower() with another JobShape::lane_groups, other shards,
  /// another order) and fits the job's `home_bytes`. No effect on a job that is ending.
  void resize(JobId job, std::shared_ptr<const JobPlan> plan, std::vector<Action>& out);
  /// The job begins no program after the open one, until resume().
  void pause(JobId job, std::vector<Action>& out);
  void resume(JobId job, std::vector<Action>& out);
  /// The job rests there until another hold().
  void hold(JobId job, Hold hold, std::vector<Action>& out);
  /// The job rests after its open step, without an evaluation, until it is no longer suspended.
  void suspend(JobId job, bool suspended, std::vector<Action>& out);
  /// Other hosts cannot finish the job's open step as planned: unless this host has everything from
  /// them, the step is dropped. Then the job rests (JobInterrupted) until go_on().
  void interrupt(JobId job, std::vector<Action>& out);
  /// The hosts have agreed how the job goes on, with this plan, as for resize(). `one_step`: it is
  /// interrupted at its next commit.
  void go_on(JobId job, std::shared_ptr<const JobPlan> plan, bool one_step,
             std::vector<Action>& out);
  /// The job is done after its open step: it evaluates and hands out the weights that it has then.
  /// Nothing holds it any more.
  void finish(JobId job, std::vector<Action>& out);

  /// Adds a device, ready for use. It gets the next number.
  DeviceId add_device(Bytes budget, std::vector<Action>& out);
  /// Tracks bound to the device finish their program there; no other unit starts. Then its copies
  /// go home, and the device leaves. No effect on a device that is gone.
  void remove_device(DeviceId device, std::vector<Action>& out);
  /// The device and its copies are gone. Jobs with unfinished units or the only copy of a boundary
  /// there redo their open step, but not completed updates, loads and evaluations. Actions in
  /// flight there are not carried out but must still be reported, with Done::lost. No effect on a
  /// device that is gone.
  void lose_device(DeviceId device, std::vector<Action>& out);

  bool idle() const { return in_flight_.empty(); }
  bool all_ended() const { return num_ended_ == tables_.jobs.size(); }
  std::size_t num_jobs() const { return tables_.jobs.size(); }
  const JobTable& job(JobId id) const { return tables_.jobs.at(id.index()); }
  const DeviceTable& device(DeviceId id) const { return table(id); }
  /// The copies on a device.
  const Residency& copies(DeviceId id) const { return memory_.on(id); }
  /// Includes devices that have left, which keep their numbers.
  std::size_t num_devices() const { return tables_.devices.size(); }
  /// The actions in flight, in no particular order.
  const boost::unordered_flat_map<ActionId, InFlight>& in_flight() const { return in_flight_; }
  /// Planned ranges, and the activations reserved there.
  Bytes bytes_in_use(DeviceId id) const { return copies(id).used() + reserved_workspace(id); }
  Bytes host_used() const { return host_used_; }
  Bytes host_peak() const { return host_peak_; }
  /// It waits for host memory, and every later job waits for it; the invalid id: no job waits.
  JobId first_waiting() const { return waiting_.empty() ? JobId() : waiting_.front(); }

  /// Throws std::logic_error if a table breaks an invariant: budgets, leases, versions.
  void check_integrity() const;
  /// Throws std::logic_error if visiting every device would start other actions than visiting the
  /// touched ones.
  void check_visits() const;

 private:
  using Room = ResidencyManager::Room;
  using Request = ResidencyManager::Request;

  // engine.cpp: jobs and programs
  void schedule();
  void admit_waiting();
  void place_programs();
  void leave_places(JobId id);
  std::optional<StepKind> next_program(const JobTable& job) const;
  void begin_program(JobId id, StepKind kind);
  void begin_buffers(JobId id);
  void begin_units(JobId id);
  void begin_host_ops(JobId id);
  void handle(const InFlight& action, const Done& done);
  void host_op_done(JobId id, int op, double now_s);
  void host_dependency_done(JobId id, int op);
  void unit_dependency_done(JobId id, int unit, double now_s);
  void unit_drained(JobId id, int unit);
  void count_finished(JobId id);
  void end_job(JobId id, JobEnd end, const std::string& reason);
  void settle(JobId id);
  void rest(JobId id);
  void tell_interrupted(JobId id);
  void release(JobId id);
  void report_end(JobId id);
  int shared_leases(DeviceId id, int block) const;

  // engine_elastic.cpp: changes of plans and devices
  void begin_attempt(JobId id);
  void withdraw(JobId id);
  void redo(JobId id);
  static void note_interruption(JobTable& job);
  void interrupt_open(JobId id);
  void end_shared_leases(JobId id);
  void share_tracks(JobTable& job) const;
  void reconsider();
  bool needs(JobId id, DeviceId device) const;
  void give_back(UnitRef unit);
  void forget_copies(DeviceId id);
  bool has_bound_tracks(DeviceId id) const;
  void leave_if_empty(DeviceId id);

  // engine_devices.cpp: work of devices
  void drive(DeviceId id);
  void take_back(DeviceId id);
  std::optional<UnitRef> claim(DeviceId id);
  bool reserve_unit(DeviceId id);
  bool sums_can_come(DeviceId id, UnitRef unit);
  bool is_leaving(DeviceId id, BufferRef ref) const;
  bool same_unit(ActionId a, ActionId b) const;
  bool start_op(DeviceId id);
  bool has_graph(DeviceId id, UnitRef unit, const OpSpec& op);
  bool keep_graph(DeviceId id, UnitRef unit, const OpSpec& op);
  void lease_graph(InFlight& op, int graph);
  Room make_op_room(DeviceId id, const OpSpec& op, JobId job);
  bool fetch_homes(DeviceId id, const OpSpec& op, JobId job);
  void load_inputs_ahead(DeviceId id);
  void prefetch(DeviceId id);
  void op_done(const InFlight& op, const Done& done);
  void graph_op_done(DeviceId id, BufferRef graph, OpKind kind);
  void unit_done(JobId id, int unit, double now_s);
  void account_op(const InFlight& op, const Done& done);

  // engine_memory.cpp: requests to and from the residency manager
  void ask_for(Request& request, DeviceId id, JobId job, const std::vector<int>& buffers) const;
  void complete(Request& request, DeviceId id) const;
  Room make_room(DeviceId id, const Request& request);
  void evict_all(DeviceId id);
  void drop_weights(DeviceId id, JobId job, int unit);
  bool is_used_again(DeviceId id, BufferRef ref) const;
  int group_of(JobId id, const UnitSpec& unit) const;
  void copy_done(const InFlight& copy, const Done& done);
  void note_space(DeviceId id, double now_s);
  void note_use(DeviceId id);
  Bytes reserved_workspace(DeviceId id) const;
  double next_use(BufferRef ref) const override;
  bool is_running(JobId job) const override { return table(job).phase == JobPhase::running; }
  ActionId start_copy(StartCopy copy) override;
  ActionId start_drop(DeviceId device, BufferRef graph) override;
  bool has_several_readers(BufferRef ref) const override;
  void touch(DeviceId id) override { dispatcher_.touch(id); }
  void watch(JobId job, DeviceId watcher) override;

  const UnitSpec& spec(UnitRef ref) const { return tables_.spec(ref); }
  const UnitState& state(UnitRef ref) const { return tables_.state(ref); }
  UnitState& state(UnitRef ref) { return tables_.state(ref); }
  const BufferSpec& buffer_spec(BufferRef ref) const {
    return table(ref.job).plan->layout.buffers[at(ref.buffer)];
  }
  JobTable& table(JobId id) { return tables_.of(id); }
  const JobTable& table(JobId id) const { return tables_.of(id); }
  DeviceTable& table(DeviceId id) { return tables_.of(id); }
  const DeviceTable& table(DeviceId id) const { return tables_.of(id); }
  ActionId start(InFlight action);

  EngineConfig config_;
  EngineTables tables_;
  ResidencyManager memory_;
  Placer placer_;
  Dispatcher dispatcher_;
  std::deque<JobId> waiting_;
  boost::unordered_flat_map<ActionId, InFlight> in_flight_;
  ActionId last_action_ = 0;
  std::size_t num_ended_ = 0;
  Bytes host_used_ = 0, host_peak_ = 0;
  std::vector<Action>* out_ = nullptr;  // during a call only
};

/// The engine's counters, for results, and its queue.
struct EngineSnapshot {
  std::vector<DeviceCounters> devices;
  Bytes host_peak = 0;
  JobId first_waiting;  ///< see Engine
};
EngineSnapshot snapshot_of(const Engine& engine);

}  // namespace spillway
