#include "scheduler/simulation/virtual_shell.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

namespace spillway {

VirtualShell::VirtualShell(EngineConfig config, VirtualCosts costs)
    : engine_(config),
      costs_(std::move(costs)),
      computes_(config.device_budgets.size()),
      copies_(costs_, config.device_budgets.size()),
      host_workers_(costs_.host_workers) {}

template <typename Member, typename... Arguments>
auto VirtualShell::tell(Member member, Arguments&&... arguments) {
  std::vector<Action> actions;
  const auto call = [&] {
    return (engine_.*member)(std::forward<Arguments>(arguments)..., actions);
  };
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    carry_out(actions);
  } else {
    const auto result = call();
    computes_.resize(engine_.num_devices());
    copies_.resize(engine_.num_devices());
    carry_out(actions);
    return result;
  }
}

void VirtualShell::submit(JobId job, std::shared_ptr<const JobPlan> plan, Bytes home_bytes,
                          const JobStart& start) {
  const Bytes needed = plan ? std::max(home_bytes, plan->layout.home_bytes) : 0;
  tell(&Engine::submit, job, std::move(plan), needed, start);
}

void VirtualShell::stop(JobId job) { tell(&Engine::stop, job); }
void VirtualShell::pause(JobId job) { tell(&Engine::pause, job); }
void VirtualShell::resume(JobId job) { tell(&Engine::resume, job); }
void VirtualShell::hold(JobId job, Hold hold) { tell(&Engine::hold, job, hold); }
void VirtualShell::suspend(JobId job, bool suspended) { tell(&Engine::suspend, job, suspended); }
void VirtualShell::finish(JobId job) { tell(&Engine::finish, job); }
void VirtualShell::resize(JobId job, std::shared_ptr<const JobPlan> plan) {
  tell(&Engine::resize, job, std::move(plan));
}
void VirtualShell::interrupt(JobId job) { tell(&Engine::interrupt, job); }
void VirtualShell::go_on(JobId job, std::shared_ptr<const JobPlan> plan, bool one_step) {
  tell(&Engine::go_on, job, std::move(plan), one_step);
}

void VirtualShell::lose_exchanges(JobId job) {
  lose_flights([&](const Flight& flight) { return flight.exchanging == job; }, now_s_);
}

/// Those in flight end at that time.
template <typename IsLost>
void VirtualShell::lose_flights(const IsLost& is_lost, double end_s) {
  for (auto& [id, flight] : in_flight_) {
    if (!is_lost(flight)) continue;
    ends_.erase({flight.done.finished_s, id});
    flight.done = {.id = id, .started_s = now_s_, .finished_s = end_s};
    flight.done.lost = true;
    ends_.insert({end_s, id});
  }
}

DeviceId VirtualShell::add_device(Bytes budget) { return tell(&Engine::add_device, budget); }
void VirtualShell::remove_device(DeviceId device) { tell(&Engine::remove_device, device); }

void VirtualShell::lose_device(DeviceId device) {
  if (engine_.device(device).state == DeviceState::gone) return;
  lose_flights([&](const Flight& flight) { return flight.device == device; },
               now_s_ + costs_.cancel_s);
  tell(&Engine::lose_device, device);
}

void VirtualShell::hang_device(DeviceId device, double deadline_s) {
  if (engine_.device(device).state == DeviceState::gone) return;
  computes_[device.index()].hangs = true;
  for (const auto& [id, flight] : in_flight_) {
    if (flight.device == device) ends_.erase({flight.done.finished_s, id});
  }
  call_at(now_s_ + deadline_s, [device](VirtualShell& shell) { shell.lose_device(device); });
}

void VirtualShell::set_link(DeviceId device, double bytes_per_s) {
  costs_.link_bytes_per_s.resize(std::max(costs_.link_bytes_per_s.size(), computes_.size()));
  costs_.link_bytes_per_s[device.index()] = bytes_per_s;
}

void VirtualShell::call_at(double time_s, std::function<void(VirtualShell&)> call) {
  calls_.emplace(std::max(time_s, now_s_), std::move(call));
}

bool VirtualShell::make_call() {
  if (calls_.empty() || (!ends_.empty() && ends_.begin()->first < calls_.begin()->first)) {
    return false;
  }
  const auto call = calls_.extract(calls_.begin());
  now_s_ = call.key();
  call.mapped()(*this);
  return true;
}

bool VirtualShell::advance() {
  if (make_call()) return true;
  if (ends_.empty()) return false;
  const auto next = in_flight_.find(ends_.begin()->second);
  const Done done = std::move(next->second.done);
  in_flight_.erase(next);
  ends_.erase(ends_.begin());
  now_s_ = done.finished_s;
  if (on_completion) on_completion(done);
  tell(&Engine::on_done, done);
  return true;
}

void VirtualShell::carry_out(std::vector<Action>& actions) {
  for (const Action& action : actions) {
    if (on_action) on_action(action);
    std::visit([this](const auto& a) { perform(a); }, action);
  }
}

/// Under the job's present plan, to which started actions belong.
const Program& VirtualShell::program(JobId job, std::size_t step_kind) const {
  return *engine_.job(job).plan->programs[step_kind];
}

void VirtualShell::complete(ActionId id, JobId job, DeviceId device, double start_s,
                            double duration_s, Bytes activations, bool may_fail) {
  Done done{id, start_s, start_s + duration_s, activations, ""};
  const auto failure = may_fail ? failures_.find(job) : failures_.end();
  if (failure != failures_.end()) {
    done.error = failure->second;
    failures_.erase(failure);
  }
  if (!device.valid() || !computes_[device.index()].hangs) ends_.insert({done.finished_s, id});
  in_flight_.emplace(id, Flight{std::move(done), device});
}

void VirtualShell::perform(const StartOp& op) {
  double& free_s = computes_[op.device.index()].free_s;
  double start_s = std::max(now_s_ + costs_.dispatch_latency_s, free_s);
  for (ActionId id : op.after) {
    if (const auto found = in_flight_.find(id); found != in_flight_.end()) {
      start_s = std::max(start_s, found->second.done.finished_s);
    }
  }
  const OpSpec& spec = program(op.job, op.step_kind).ops[at(op.op)];
  const double duration_s = spec.seconds(op.has_graph) * slowdown(op.device) *
                                costs_.contention.at(busy_threads(start_s, op.device)) +
                            costs_.op_start_of(op.device.index());
  free_s = start_s + duration_s;
  complete(op.id, op.job, op.device, start_s, duration_s, spec.workspace);
}

void VirtualShell::perform(const DropGraph& drop) {
  double& free_s = computes_[drop.device.index()].free_s;
  free_s = std::max(now_s_ + costs_.dispatch_latency_s, free_s);
  complete(drop.id, drop.job, drop.device, free_s, 0, 0, /*may_fail=*/false);
}

/// Includes the device that computes, when an op starts. A slowed device sleeps most of the time
/// and leaves its core free.
double VirtualShell::busy_threads(double time_s, DeviceId computing) const {
  double busy = 1;
  if (costs_.contention.threads == 0) return busy;  // not needed
  for (std::size_t d = 0; d < computes_.size(); ++d) {
    const DeviceId device(d);
    if (engine_.device(device).state == DeviceState::gone) continue;
    if (device != computing && computes_[d].free_s > time_s) busy += 1 / slowdown(device);
    busy += copies_.busy_cores(costs_, d, time_s);
  }
  return busy + host_workers_.num_busy(time_s);
}

void VirtualShell::perform(const StartCopy& copy) {
  const auto run = [&] {
    const std::size_t device = copy.device.index();
    if (copy.direction == CopyDirection::to_host)
      return copies_.to_host(costs_, device, copy.bytes, now_s_);
    if (!copy.peer.valid()) return copies_.from_host(costs_, device, copy.bytes, now_s_);
    return copies_.from_device(costs_, device, copy.peer.index(), copy.bytes, now_s_);
  };
  const CopyQueues::Span span = run();
  complete(copy.id, copy.job, copy.device, span.begin_s, span.end_s - span.begin_s, 0,
           /*may_fail=*/false);
}

void VirtualShell::perform(const StartHostOp& op) {
  const HostOpSpec& spec = program(op.job, op.step_kind).host_ops[at(op.op)];
  if (spec.kind == HostOpKind::exchange) return exchange(op, spec);
  const HostWorkers::Span span =
      host_workers_.run(now_s_ + costs_.dispatch_latency_s, spec.cost_s, spec.grains);
  complete(op.id, op.job, DeviceId(), span.begin_s, span.end_s - span.begin_s, 0);
}

/// As if all hosts were as far: the exchange ends when its bytes have passed.
void VirtualShell::exchange(const StartHostOp& op, const HostOpSpec& spec) {
  const Bytes bytes = std::max(sent_bytes(spec), taken_bytes(spec));
  const double start_s = std::max(now_s_ + costs_.dispatch_latency_s, network_free_s_);
  network_free_s_ = start_s + static_cast<double>(bytes) / costs_.network_bytes_per_s;
  const double end_s = network_free_s_ + costs_.network_latency_s;
  complete(op.id, op.job, DeviceId(), start_s, end_s - start_s, 0, /*may_fail=*/false);
  in_flight_.at(op.id).exchanging = op.job;
}

void VirtualShell::perform(const AdmitJob& admission) {
  complete(admission.id, admission.job, DeviceId(), now_s_, costs_.admission_s, 0);
}

void VirtualShell::perform(const ReleaseJob& release) {
  complete(release.id, release.job, DeviceId(), now_s_, 0, 0);
}

}  // namespace spillway
