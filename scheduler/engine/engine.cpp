#include "scheduler/engine/engine.h"

#include <algorithm>
#include <cassert>
#include <stdexcept>
#include <utility>

namespace spillway {
namespace {

std::vector<Bytes> planned_parts(const EngineConfig& config) {
  std::vector<Bytes> parts;
  for (const Bytes budget : config.device_budgets) parts.push_back(config.split.planned(budget));
  return parts;
}

/// The blocks of which no other host has to send a part.
std::vector<int> weights_at_home(const JobTable& job) {
  std::vector<int> blocks = job.plan->layout.weights;
  if (!job.plan->layout.is_sharded()) return blocks;
  for (const HostOpSpec& op : job.program->host_ops) {
    if (op.kind == HostOpKind::take_weights) std::erase(blocks, op.index);
  }
  return blocks;
}

}  // namespace

Engine::Engine(EngineConfig config)
    : config_(std::move(config)),
      tables_(config_.device_budgets),
      memory_(planned_parts(config_)),
      placer_(config_.device_budgets.size()),
      dispatcher_(tables_, memory_, config_.policy, config_.double_buffer) {}

ActionId Engine::start(InFlight action) {
  ++table(action.job).in_flight;
  in_flight_.emplace(++last_action_, std::move(action));
  return last_action_;
}

void Engine::submit(JobId job, std::shared_ptr<const JobPlan> plan, Bytes home_bytes,
                    const JobStart& start, std::vector<Action>& out) {
  assert(job.index() == tables_.jobs.size());
  out_ = &out;
  JobTable& table = tables_.jobs.emplace_back();
  memory_.add_job();
  if (!plan) {
    table.phase = JobPhase::ended;
    ++num_ended_;
    return;
  }
  assert(plan->layout.home_bytes <= home_bytes);
  assert(home_bytes + plan->layout.shared_bytes <= config_.host_budget);
  table.plan = std::move(plan);
  table.step = table.plan->first_step;
  table.home_bytes = home_bytes;
  table.paused = start.paused;
  table.suspended = start.suspended;
  table.hold = start.hold;
  waiting_.push_back(job);
  schedule();
}

void Engine::stop(JobId job, std::vector<Action>& out) {
  out_ = &out;
  end_job(job, JobEnd::stopped, "");
  schedule();
}

void Engine::fail(JobId job, const std::string& reason, std::vector<Action>& out) {
  out_ = &out;
  end_job(job, JobEnd::failed, reason);
  schedule();
}

void Engine::on_done(const Done& done, std::vector<Action>& out) {
  out_ = &out;
  const auto found = in_flight_.find(done.id);
  assert(found != in_flight_.end());
  const InFlight action = std::move(found->second);
  in_flight_.erase(found);
  JobTable& job = table(action.job);
  for (DeviceId watcher : std::exchange(job.watchers, {})) touch(watcher);
  handle(action, done);
  --job.in_flight;
  settle(action.job);
  if (action.device.valid()) {
    touch(action.device);
    dispatcher_.note_state(tables_, memory_, action.device);
  }
  schedule();
}

void Engine::handle(const InFlight& action, const Done& done) {
  JobTable& job = table(action.job);
  if (action.device.valid() && table(action.device).state == DeviceState::gone) {
    if (action.kind == InFlight::Kind::copy) memory_.end_lost_copy(*this, route_of(action));
    return;  // the tables of its device were cleared
  }
  if (done.lost) {  // an exchange with a host that is lost or has dropped the step
    assert(action.kind == InFlight::Kind::host_op);
    return interrupt_open(action.job);
  }
  // A repeated op may have read lost data.
  const bool counts = !job.redoes || action.kind != InFlight::Kind::op;
  if (!done.error.empty() && counts) end_job(action.job, JobEnd::failed, done.error);
  switch (action.kind) {
    case InFlight::Kind::op:
      return op_done(action, done);
    case InFlight::Kind::drop:
      memory_.end_drop(*this, action.device, {action.job, action.buffer});
      return note_space(action.device, done.finished_s);
    case InFlight::Kind::copy:
      return copy_done(action, done);
    case InFlight::Kind::admission:
      if (job.phase == JobPhase::admitting) job.phase = JobPhase::settling;
      return;
    case InFlight::Kind::host_op:
      if (job.program->host_ops[at(action.op)].kind == HostOpKind::finish_evaluation) {
        job.kept.evaluation = true;
      }
      if (job.phase == JobPhase::running) host_op_done(action.job, action.op, done.finished_s);
      return;
    case InFlight::Kind::release:
      if (!done.error.empty() && job.end != JobEnd::failed) {
        job.end = JobEnd::failed;
        job.reason = done.error;
      }
      host_used_ -= job.home_bytes + memory_.give_back_homes(job.plan->layout.shared);
      return report_end(action.job);
  }
}

/// Starts whatever may start now.
void Engine::schedule() {
  admit_waiting();
  const auto drive_and_leave = [&](DeviceId id) {
    drive(id);
    leave_if_empty(id);
  };
  do {
    place_programs();
    dispatcher_.visit(tables_, memory_, drive_and_leave, [&](DeviceId id) { prefetch(id); });
  } while (placer_.has_work());
}

/// The job's program has ended, or will not.
void Engine::leave_places(JobId id) {
  JobTable& job = table(id);
  if (!job.waits_for_places && job.places.empty()) return;
  placer_.remove(id);
  job.places.clear();
  job.waits_for_places = false;
}

void Engine::place_programs() {
  if (!placer_.has_work()) return;
  for (JobId id : placer_.place(tables_, memory_)) dispatcher_.rank(tables_, id);
  dispatcher_.note_ready();
}

void Engine::admit_waiting() {
  while (!waiting_.empty()) {
    const JobId id = waiting_.front();
    JobTable& job = table(id);
    const std::vector<SharedBlock>& shared = job.plan->layout.shared;
    const Bytes needed = job.home_bytes + memory_.missing_homes(shared);
    if (host_used_ + needed > config_.host_budget) return;
    waiting_.pop_front();
    memory_.take_homes(shared);
    host_used_ += needed;
    host_peak_ = std::max(host_peak_, host_used_);
    job.phase = JobPhase::admitting;
    InFlight admission{.kind = InFlight::Kind::admission, .job = id};
    out_->push_back(AdmitJob{start(std::move(admission)), id, job.home_bytes});
  }
}

/// The next program of a settled job; nothing if the job has to rest and nothing is left to do
/// before.
std::optional<StepKind> Engine::next_program(const JobTable& job) const {
  const JobPlan& plan = job.next_plan ? *job.next_plan : *job.plan;
  if (job.finishes) return plan.finish_kind(job.step);
  const StepKind next = plan.step_kind(job.step);
  const bool is_held = job.step >= job.hold.step;
  if (next.finish || !(is_held || job.suspended)) return next;
  const StepKind rest = plan.rest_kind(job.step, is_held && job.hold.evaluate);
  // If a step was dropped, the parts of other hosts have to come again.
  const bool lacks_parts = job.redoes && job.plan->layout.is_sharded();
  const bool is_updated = !rest.update || (job.kept.updates && !lacks_parts);
  const bool is_done = is_updated && (!rest.evaluate || job.kept.evaluation);
  if (is_done || plan.programs[rest.index()]->host_ops.empty()) return std::nullopt;
  return rest;
}

/// Starts the next program of a settled job, or repeats the open one.
void Engine::begin_program(JobId id, StepKind kind) {
  JobTable& job = table(id);
  begin_attempt(id);
  job.phase = JobPhase::running;
  job.resting = false;
  job.kind = kind;
  job.program = job.plan->programs[kind.index()].get();
  job.left = job.program->units.size() + job.program->host_ops.size();
  job.unclaimed_s = job.program->compute_s;
  job.work.clear();
  begin_buffers(id);
  begin_units(id);
  begin_host_ops(id);
  job.waits_for_places = Placer::is_needed(job);
  if (job.waits_for_places) {
    return placer_.add(id, dispatcher_.priority(tables_, id, /*track=*/0, /*unit=*/0));
  }
  dispatcher_.note_ready();
  dispatcher_.rank(tables_, id);
}

void Engine::begin_buffers(JobId id) {
  JobTable& job = table(id);
  const std::vector<BufferSpec>& buffers = job.plan->layout.buffers;
  job.last_units.assign(buffers.size(), -1);
  job.reads_left = job.program->reads;
  memory_.begin(id, buffers, job.step, job.plan->layout.shared);
  const auto make_valid = [&](const std::vector<int>& at_home) {
    for (int b : at_home) memory_.set_home_valid({id, b});
  };
  const Layout& layout = job.plan->layout;
  if (!job.kind.update || job.kept.updates) make_valid(weights_at_home(job));
  if (job.kept.loads) make_valid(layout.batch);
  if (job.kept.eval_loads) make_valid(layout.eval_batch);
}

/// Units that are kept count as claimed and done; they come first in their tracks.
void Engine::begin_units(JobId id) {
  JobTable& job = table(id);
  const Program& program = *job.program;
  job.units.assign(program.units.size(), UnitState{});
  job.tracks.assign(program.track_units.size(), TrackState{});
  share_tracks(job);
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    const UnitSpec& unit = program.units[u];
    UnitState& unit_state = job.units[u];
    unit_state.group = group_of(id, unit);
    unit_state.waits_for = static_cast<int>(std::ranges::count_if(
        unit.host_deps, [&](int op) { return !job.kept.has(program.host_ops[at(op)]); }));
    unit_state.waits_for += static_cast<int>(std::ranges::count_if(
        unit.unit_deps, [&](int before) { return !job.kept.has(program.units[at(before)]); }));
    if (!job.kept.has(unit)) continue;
    unit_state.claimed = true;
    unit_state.ops_started = unit_state.ops_done = unit.num_ops;
    ++job.tracks[at(unit.track)].cursor;
    job.unclaimed_s -= unit.cost_s;
    --job.left;
  }
}

/// Starts the host ops without dependencies, in order.
void Engine::begin_host_ops(JobId id) {
  JobTable& job = table(id);
  const Program& program = *job.program;
  job.host_waits.clear();
  job.exchanges_left = static_cast<int>(
      std::ranges::count(program.host_ops, HostOpKind::exchange, &HostOpSpec::kind));
  for (const HostOpSpec& op : program.host_ops) {
    const auto units = std::ranges::count_if(
        op.unit_deps, [&](int u) { return !job.kept.has(program.units[at(u)]); });
    const auto host_ops = std::ranges::count_if(
        op.host_deps, [&](int h) { return !job.kept.has(program.host_ops[at(h)]); });
    job.host_waits.push_back(static_cast<int>(units + host_ops) + 1);
  }
  // Each op's extra dependency is this point.
  for (int op = 0; op < static_cast<int>(program.host_ops.size()); ++op) {
    if (job.kept.has(program.host_ops[at(op)])) {
      --job.left;
    } else {
      host_dependency_done(id, op);
    }
  }
}

void Engine::host_dependency_done(JobId id, int op) {
  JobTable& job = table(id);
  if (--job.host_waits[at(op)] > 0) return;
  const ActionId action = start({.kind = InFlight::Kind::host_op, .job = id, .op = op});
  out_->push_back(StartHostOp{action, id, job.kind.index(), job.step, job.attempt, op});
}

void Engine::host_op_done(JobId id, int op, double now_s) {
  JobTable& job = table(id);
  const Program& program = *job.program;
  const HostOpSpec& host_op = program.host_ops[at(op)];
  const auto make_valid = [&](int buffer) { memory_.set_home_valid({id, buffer}); };
  if (host_op.kind == HostOpKind::exchange) --job.exchanges_left;
  const bool completes_weights =
      host_op.kind == HostOpKind::update || host_op.kind == HostOpKind::take_weights;
  if (completes_weights) make_valid(host_op.index);
  if (host_op.kind == HostOpKind::load) {
    const Layout& layout = job.plan->layout;
    for (int b : host_op.index == 1 ? layout.eval_batch : layout.batch) make_valid(b);
  }
  for (int dependent : program.host_ops_after_host[at(op)]) host_dependency_done(id, dependent);
  for (int u : program.units_after_host[at(op)]) unit_dependency_done(id, u, now_s);
  count_finished(id);
}

void Engine::unit_dependency_done(JobId id, int number, double now_s) {
  JobTable& job = table(id);
  UnitState& unit = job.units[at(number)];
  unit.ready_s = std::max(unit.ready_s, now_s);
  if (--unit.waits_for > 0) return;
  dispatcher_.note_ready();
  dispatcher_.rank(tables_, id, job.program->units[at(number)].track);
}

void Engine::unit_drained(JobId id, int unit) {
  JobTable& job = table(id);
  for (int op : job.program->host_ops_after_unit[at(unit)]) host_dependency_done(id, op);
  count_finished(id);
}

void Engine::count_finished(JobId id) {
  JobTable& job = table(id);
  if (--job.left > 0) return;
  leave_places(id);
  if (job.program->finishes) return end_job(id, JobEnd::done, "");
  job.phase = JobPhase::settling;
  job.kept.updates = true;
  if (!job.program->commits) return;
  ++job.step;
  job.kept = {};
  if (job.one_step) note_interruption(job);
  out_->push_back(StepCommitted{id, job.step, std::exchange(job.work, {})});
}

void Engine::end_job(JobId id, JobEnd end, const std::string& reason) {
  JobTable& job = table(id);
  if (job.phase >= JobPhase::ending) return;
  const bool was_waiting = job.phase == JobPhase::waiting;
  job.phase = JobPhase::ending;
  job.end = end;
  job.reason = reason;
  withdraw(id);
  if (!was_waiting) return settle(id);
  std::erase(waiting_, id);
  report_end(id);
}

/// Continues or ends a job once it has no action in flight.
void Engine::settle(JobId id) {
  JobTable& job = table(id);
  const bool ends = job.phase == JobPhase::ending;
  if (job.in_flight > 0 || (!ends && job.phase != JobPhase::settling)) return;
  if (memory_.drop_graphs(*this, id)) return;  // settles when they are gone
  end_shared_leases(id);
  memory_.drop_all(*this, id);
  if (ends) return release(id);
  if (job.interrupted) return tell_interrupted(id);
  const std::optional<StepKind> kind = next_program(job);
  if (!kind) return rest(id);
  const bool needs_devices = kind->train || kind->evaluate;
  if (!job.paused || !needs_devices) begin_program(id, *kind);
}

/// The hosts evaluate again, too: some may not have finished.
void Engine::tell_interrupted(JobId id) {
  JobTable& job = table(id);
  job.kept.evaluation = false;
  if (std::exchange(job.told, true)) return;
  out_->push_back(JobInterrupted{id, job.step});
}

void Engine::rest(JobId id) {
  JobTable& job = table(id);
  if (std::exchange(job.resting, true)) return;
  begin_attempt(id);
  out_->push_back(JobRested{id, job.step});
}

void Engine::release(JobId id) {
  JobTable& job = table(id);
  job.phase = JobPhase::releasing;
  job.units = {};
  job.last_units = {};
  memory_.end(*this, id);
  out_->push_back(ReleaseJob{start({.kind = InFlight::Kind::release, .job = id}), id, job.end});
}

void Engine::report_end(JobId id) {
  JobTable& job = table(id);
  job.phase = JobPhase::ended;
  ++num_ended_;
  out_->push_back(JobEnded{id, job.end, job.reason});
}

/// Units that have reserved a shared block on a device and have not ended, and kept graphs.
int Engine::shared_leases(DeviceId id, int block) const {
  int leases = 0;
  for (BufferRef user : memory_.users(block)) {
    leases += memory_.graphs_that_need(id, user);
    const JobTable& job = table(user.job);
    if (!job.program) continue;
    for (int u : job.program->unit_users[at(user.buffer)]) {
      const UnitState& unit = job.units[at(u)];
      leases += unit.reserved && unit.device == id && !job.is_done(u) ? 1 : 0;
    }
  }
  return leases;
}

void Engine::check_integrity() const {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(std::string("engine: ") + what);
  };
  require(host_used_ <= config_.host_budget, "host budget exceeded");
  memory_.check_integrity();
  for (std::size_t d = 0; d < tables_.devices.size(); ++d) {
    const DeviceTable& device = tables_.devices[d];
    const Residency& held = copies(DeviceId(d));
    require(device.state != DeviceState::gone ||
                (held.used() == 0 && !device.current && !device.next && device.running.empty()),
            "something is left on a device that is gone");
    require(bytes_in_use(DeviceId(d)) <= held.budget(), "device budget exceeded");
    for (const auto& [ref, entry] : held.entries()) {
      if (ref.job == kAllJobs) {
        require(!entry.dirty && !memory_.users(ref.buffer).empty(), "a wrong shared copy");
        require(entry.leases == shared_leases(DeviceId(d), ref.buffer),
                "leases of a shared copy are miscounted");
        continue;
      }
      const JobTable& job = table(ref.job);
      const BufferSpec& spec = buffer_spec(ref);
      require(job.phase == JobPhase::running || job.in_flight > 0, "a copy outlives its job");
      require(entry.version == job.step, "a copy has another step's version");
      require(entry.dirty || entry.filling != 0 || entry.writer != 0 || memory_.home_valid(ref) ||
                  memory_.has_original(ref) || job.phase != JobPhase::running ||
                  spec.kind == BufferKind::graph,
              "a clean copy without a valid home or an original");
      require(spec.kind != BufferKind::weights || !entry.dirty, "weights written on a device");
    }
  }
}

void Engine::check_visits() const {
  const auto starts = [this](bool everywhere) {
    Engine copy = *this;
    std::vector<Action> actions;
    copy.out_ = &actions;
    for (std::size_t d = 0; everywhere && d < tables_.devices.size(); ++d) copy.touch(DeviceId(d));
    copy.schedule();
    return actions.size();
  };
  if (starts(true) != starts(false)) throw std::logic_error("engine: a device is not visited");
}

EngineSnapshot snapshot_of(const Engine& engine) {
  EngineSnapshot snapshot{.host_peak = engine.host_peak(), .first_waiting = engine.first_waiting()};
  for (std::size_t d = 0; d < engine.num_devices(); ++d) {
    snapshot.devices.push_back(engine.device(DeviceId(d)).counters);
  }
  return snapshot;
}

}  // namespace spillway
