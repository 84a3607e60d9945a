#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device/memory_split.h"
#include "scheduler/engine/action.h"
#include "scheduler/engine/copy_overlap.h"
#include "scheduler/engine/policy.h"
#include "scheduler/engine/ready_tracks.h"
#include "scheduler/plan/program.h"
#include "spilling/residency/residency_manager.h"

/// The engine's tables. Values only, so that an engine can be copied.
namespace spillway {

struct DeviceCounters {
  std::uint64_t ops = 0;
  std::uint64_t loads = 0;       ///< copies to the device
  std::uint64_t prefetches = 0;  ///< loads started while an op was running there
  std::uint64_t evictions = 0;   ///< copies evicted before their last use there
  std::uint64_t moves = 0;       ///< loads from another device
  Bytes h2d_bytes = 0, d2h_bytes = 0, h2d_weight_bytes = 0;
  Bytes h2d_shared_bytes = 0;     ///< weights that jobs share, in h2d_weight_bytes
  std::uint64_t kept_graphs = 0;  ///< backward ops that used a kept graph
  double busy_s = 0, copy_s = 0;
  double hidden_s = 0;              ///< the part of copy_s during which the device computed
  double stall_s = 0;               ///< idle while the next op waited only for a transfer
  Bytes peak_bytes = 0;             ///< planned ranges and activations
  Bytes activation_peak_bytes = 0;  ///< of any one op
  bool short_of_room = false;       ///< a copy was evicted or had to wait for space
};

struct EngineConfig {
  std::vector<Bytes> device_budgets;
  MemorySplit split;  ///< of device memory: planned ranges, activations
  Bytes host_budget = 0;
  std::shared_ptr<const Policy> policy;
  bool double_buffer = true;  ///< false: a load starts only when nothing computes on the device
};

struct UnitState {
  int ops_started = 0, ops_done = 0;
  int waits_for = 0;  ///< host ops and units of other tracks that are not done
  int drains_left = 0;
  bool claimed = false, reserved = false;
  int group = -1;  ///< units of one kind with the same last shared block; -1: it has none
  DeviceId device;
  double ready_s = 0;  ///< when the last thing it waited for, transfers aside, ended
};

/// The progress of a track in the job's program.
struct TrackState {
  std::size_t cursor = 0;               ///< first unit not claimed
  DeviceId device;                      ///< device that claimed its latest unit
  std::optional<ReadyTrack> ready;      ///< its rank, if its next unit may be claimed
  std::optional<GroupedTrack> grouped;  ///< its rank in the group of that unit
  DeviceId only;                        ///< by this device; the invalid id: by any
  int group = -1;                       ///< of that unit
};

/// settling: between two programs or attempts. Nothing starts; once no action is in flight, the
/// copies are dropped and the next one begins, unless the job is paused. releasing: the shell frees
/// its home.
enum class JobPhase : std::uint8_t {
  waiting,
  admitting,
  settling,
  running,
  ending,
  releasing,
  ended
};

/// Work since a job's last commit that stays done, whichever program does the rest.
struct KeptWork {
  bool updates = false;                    ///< updates that follow the commit
  bool loads = false, eval_loads = false;  ///< the batches are at home
  bool evaluation = false;                 ///< evaluation of the weights at the commit

  bool has(const HostOpSpec& op) const;
  bool has(const UnitSpec& unit) const { return evaluation && unit.kind == OpKind::evaluate; }
};

struct JobTable {
  std::shared_ptr<const JobPlan> plan;
  std::shared_ptr<const JobPlan>
      next_plan;         ///< replaces plan once the job has settled; may be null
  Bytes home_bytes = 0;  ///< reserved for it: enough for any of its plans
  JobPhase phase = JobPhase::waiting;
  std::int64_t step = 0;   ///< steps committed
  int attempt = 0;         ///< how often an open step was dropped
  bool paused = false;     ///< starts nothing after the open program
  bool suspended = false;  ///< rests at its next commit
  Hold hold;
  bool finishes = false;     ///< the next program finishes the job
  bool resting = false;      ///< held or suspended, and nothing is left to do here
  bool redoes = false;       ///< the next program repeats the open step
  bool interrupted = false;  ///< begins no program before go_on()
  bool told = false;         ///< interrupted, and JobInterrupted is out
  bool one_step = false;     ///< it is interrupted at its next commit
  KeptWork kept;
  StepKind kind;
  const Program* program = nullptr;  // owned by plan
  std::vector<UnitState> units;
  std::vector<int> host_waits;  ///< by host op: dependencies not done
  std::vector<TrackState> tracks;
  bool waits_for_places = false;   ///< the program begins once its tracks have devices, see Placer
  std::vector<DeviceId> places;    ///< by track: its device; empty: any, or as the plan says
  int tracks_a_device = 0;         ///< limit of tracks per device: 1 if there are enough devices
  std::vector<int> last_units;     ///< by buffer: the last unit that started an op on it; -1: none
  std::vector<int> reads_left;     ///< by buffer: ops that still have to read it
  std::vector<DeviceWork> work;    ///< work of the open program that is done
  std::vector<DeviceId> watchers;  ///< devices that are blocked until an action of it ends
  std::size_t left = 0;            ///< units and host ops of the program that are not finished
  int exchanges_left = 0;          ///< those among them that other hosts take part in
  double unclaimed_s = 0;          ///< compute of the program's unclaimed units
  std::uint64_t last_served = 0;   ///< number of its latest claim, over all jobs; 0: none yet
  int in_flight = 0;               ///< actions
  JobEnd end = JobEnd::done;
  std::string reason;

  /// Whether all ops of the unit have started.
  bool has_started(int unit) const {
    return units[at(unit)].ops_started == program->units[at(unit)].num_ops;
  }
  bool is_done(int unit) const {
    return units[at(unit)].ops_done == program->units[at(unit)].num_ops;
  }
  /// The remaining compute in seconds.
  double remaining_s() const {
    const auto steps = plan->max_steps - step - (program && program->commits ? 1 : 0);
    return static_cast<double>(std::max<std::int64_t>(steps, 0)) * plan->step_s + unclaimed_s;
  }
};

struct UnitRef {
  JobId job;
  int unit = 0;
  bool operator==(const UnitRef&) const = default;
};

/// leaving: takes no new track; tracks bound to it finish their program. gone: lost or removed.
enum class DeviceState : std::uint8_t { usable, leaving, gone };

struct DeviceTable {
  DeviceState state = DeviceState::usable;
  Bytes budget = 0;                      ///< activations included
  std::optional<UnitRef> current, next;  ///< next is claimed and its weights are loading
  RangeAllocator::End side = RangeAllocator::End::low;  ///< where the ranges of current are placed
  ShortList<ActionId> running;                          ///< ops started and not done, in order
  std::uint64_t tried = 0;        ///< `readiness_` at the last claim that found nothing
  std::uint64_t compared = 0;     ///< `readiness_` when it was last asked for overtaking jobs
  int group = -1;                 ///< of its latest claim; see UnitState
  std::uint64_t group_begin = 0;  ///< the claim that began it
  bool group_reserved = false;    ///< a unit of it has reserved its memory since
  bool waits_for_space = false;
  double space_ready_s = 0, last_op_finished_s = 0;
  CopyOverlap overlap;
  DeviceCounters counters;
};

/// Jobs and devices.
struct EngineTables {
  explicit EngineTables(const std::vector<Bytes>& budgets);

  std::vector<DeviceTable> devices;
  std::vector<JobTable> jobs;

  JobTable& of(JobId id) { return jobs[id.index()]; }
  const JobTable& of(JobId id) const { return jobs[id.index()]; }
  DeviceTable& of(DeviceId id) { return devices[id.index()]; }
  const DeviceTable& of(DeviceId id) const { return devices[id.index()]; }
  const UnitSpec& spec(UnitRef ref) const { return of(ref.job).program->units[at(ref.unit)]; }
  UnitState& state(UnitRef ref) { return of(ref.job).units[at(ref.unit)]; }
  const UnitState& state(UnitRef ref) const { return of(ref.job).units[at(ref.unit)]; }
  /// Whether the device may take units of the job.
  bool can_run(const JobTable& job, DeviceId id) const;
};

/// An action between start and Done.
struct InFlight {
  enum class Kind : std::uint8_t { op, drop, copy, host_op, admission, release } kind = Kind::op;
  JobId job;
  DeviceId device;
  int unit = 0, op = 0;    ///< op: position in the program's ops or host ops
  int buffer = 0;          ///< copy, drop
  bool has_graph = false;  ///< see StartOp
  CopyDirection direction = CopyDirection::to_device;
  DeviceId peer;           ///< copy: comes from there, not from the home
  bool is_shared = false;  ///< copy from a device that keeps its own; otherwise it drains there
  Bytes workspace = 0;
  Bytes used_high = 0;  ///< op: largest planned use of its device since it was started
  ShortList<ActionId> after;
  double transfers_ready_s = 0, others_ready_s = 0;
};

/// Of a copy.
inline CopyRoute route_of(const InFlight& copy) {
  return {{copy.job, copy.buffer}, copy.device, copy.direction, copy.peer, copy.is_shared};
}

}  // namespace spillway
