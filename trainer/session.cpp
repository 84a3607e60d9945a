#include "trainer/session.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.h"
#include "scheduler/virtual_shell.h"
#include "trainer/check_sizes.h"
#include "trainer/counting_allocator.h"
#include "trainer/home_store.h"
#include "trainer/host_rates.h"
#include "trainer/range_runner.h"
#include "trainer/session_impl.h"

namespace spillway {
namespace {

std::shared_ptr<const Policy> checked_policy(const std::string& name) {
  auto policy = make_policy(name);
  if (!policy) {
    throw ConfigError("scheduling.policy", 0,
                      "is '" + name + "', must be lrtf, srtf, fifo, round_robin or random");
  }
  return policy;
}

}  // namespace

void TrialRunner::admit(JobId job, std::byte* home) { trials_[job.index()]->job->admit(home); }

OpRunner::Keep TrialRunner::run_op(const OpCall& call) {
  const MeterScope scope(call.device->activations());
  return trials_[call.job.index()]->job->run_op(call);
}

void TrialRunner::run_host_op(const HostCall& call) {
  trials_[call.job.index()]->job->run_host_op(call);
}

void TrialRunner::warm(Device&) { warm_up_thread(); }

const char* to_string(TrialState state) {
  switch (state) {
    case TrialState::waiting:
      return "waiting";
    case TrialState::running:
      return "running";
    case TrialState::done:
      return "done";
    case TrialState::failed:
      return "failed";
    case TrialState::stopped:
      return "stopped";
  }
  return "?";
}

Session::Impl::Impl(SessionConfig session_config)
    : config(std::move(session_config)),
      policy(checked_policy(config.policy)),
      devices(config.devices),
      home_store(make_home_store(config.home_path, *devices[0].device)),
      host(config.host_memory, *home_store),
      pilot(config.pilot_cache),
      pool(num_host_workers()),
      runner(trials),
      trace(config.max_trace_spans) {}

int Session::Impl::num_host_workers() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

double Session::Impl::now_s() const {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Profile Session::Impl::profile_of(const Model& model) {
  return config.estimate ? pilot.estimate(model.spec) : pilot.measure(model);
}

void Session::Impl::require_room_for_home(const SessionTrial& trial) const {
  Bytes homes = trial.planned.summary.home_bytes;
  for (const auto& other : trials) homes += other->planned.summary.home_bytes;
  require_home_room(config.home_path, std::min(homes, config.host_memory));
}

EngineConfig Session::Impl::engine_config() const {
  EngineConfig engine{
      .host_budget = config.host_memory, .policy = policy, .double_buffer = config.double_buffer};
  for (std::size_t d = 0; d < devices.size(); ++d) {
    engine.device_budgets.push_back(devices[d].budget);
  }
  return engine;
}

RunResult Session::Impl::summarise(const EngineSnapshot& snapshot, double wall_s) const {
  RunResult result{.host_budget_bytes = config.host_memory,
                   .host_peak_bytes = snapshot.host_peak,
                   .wall_s = wall_s};
  for (const auto& trial : trials) result.trials.push_back(trial->result);
  double stall_s = 0;
  for (std::size_t d = 0; d < snapshot.devices.size(); ++d) {
    const DeviceCounters& counters = snapshot.devices[d];
    result.devices.push_back({.kind = devices[d].device->kind(),
                              .budget_bytes = devices[d].budget,
                              .peak_bytes = counters.peak_bytes,
                              .activation_peak_bytes = counters.activation_peak_bytes,
                              .busy_share = wall_s > 0 ? counters.busy_s / wall_s : 0,
                              .h2d_bytes = counters.h2d_bytes,
                              .d2h_bytes = counters.d2h_bytes,
                              .ops = counters.ops,
                              .loads = counters.loads,
                              .prefetches = counters.prefetches,
                              .evictions = counters.evictions});
    result.h2d_bytes += counters.h2d_bytes;
    result.d2h_bytes += counters.d2h_bytes;
    result.h2d_weight_bytes += counters.h2d_weight_bytes;
    result.copy_s += counters.copy_s;
    stall_s += counters.stall_s;
  }
  if (result.copy_s > 0) result.copy_hidden_share = 1 - std::min(1.0, stall_s / result.copy_s);
  return result;
}

Session::Session(SessionConfig config) {
  initialize_torch();
  impl_ = std::make_unique<Impl>(std::move(config));
}

Session::~Session() = default;

JobId Session::submit(TrialConfig trial) {
  trial.train.validate();
  if (trial.train.reduction_groups == 0) {
    trial.train.reduction_groups = default_groups(trial.train.virtual_nodes);
    trial.train.validate();
  }
  const std::shared_ptr<const Model> model =
      trial.model(trial.train.batch_size / trial.train.virtual_nodes);
  model->spec.validate();
  std::unique_lock lock(impl_->mutex);
  check_sizes(trial.name, model->spec, trial.train.virtual_nodes, impl_->devices.budgets());
  lock.unlock();
  auto entry = std::make_unique<SessionTrial>();
  entry->config = trial;
  entry->model = model;
  entry->profile = impl_->profile_of(*model);
  entry->times = impl_->measure_kinds(*model);
  lock.lock();
  entry->planned = impl_->plan_for(*entry, trial.train.lanes);
  require_devices(entry->planned, trial.train.lanes);
  entry->planned.summary.home_bytes = impl_->home_for_all_lanes(*entry);
  impl_->require_room_for_home(*entry);
  entry->plan = entry->planned.plan;
  entry->lanes_asked = trial.train.lanes;
  entry->job = std::make_unique<TrainingJob>(model, trial, entry->plan);
  entry->result = {.name = trial.name,
                   .parameters = model->spec.num_parameters(),
                   .num_shards = entry->planned.summary.num_shards,
                   .virtual_nodes = trial.train.virtual_nodes,
                   .lanes = entry->planned.summary.lanes,
                   .order = entry->planned.summary.order,
                   .training_state_bytes = entry->planned.summary.training_state_bytes};
  impl_->trials.push_back(std::move(entry));
  return JobId(impl_->trials.size() - 1);
}

const TrialPlan& Session::plan(JobId trial) const {
  return impl_->trials.at(trial.index())->planned.summary;
}

void Session::run() {
  Impl& impl = *impl_;
  if (impl.config.estimate) throw Error("a session with estimated costs plans only");
  std::vector<std::shared_ptr<const JobPlan>> plans;
  {
    const std::lock_guard lock(impl.mutex);
    std::vector<Device*> devices;
    for (std::size_t d = 0; d < impl.devices.size(); ++d) {
      devices.push_back(impl.devices[d].device.get());
    }
    impl.run_begin_s = impl.now_s();
    impl.shell = std::make_unique<Shell>(impl.engine_config(), devices, impl.host, impl.pool,
                                         impl.runner, impl, &impl.trace,
                                         Patience{.least_s = impl.config.device_timeout_s});
    for (int d : impl.devices.gone()) impl.shell->remove_device(DeviceId(d), "it was removed");
    for (const auto& trial : impl.trials) plans.push_back(trial->plan);
    if (impl.stop_asked) impl.shell->stop_all();
  }
  for (std::size_t t = 0; t < plans.size(); ++t) {
    impl.shell->submit(JobId(t), plans[t], impl.trials[t]->planned.summary.home_bytes);
  }
  impl.shell->run();
  const std::lock_guard lock(impl.mutex);
  impl.final_snapshot = impl.shell->snapshot();
  impl.run_s = impl.now_s() - impl.run_begin_s;
  impl.shell.reset();
}

void Session::stop() {
  const std::lock_guard lock(impl_->mutex);
  impl_->stop_asked = true;
  if (impl_->shell) impl_->shell->stop_all();
}

std::vector<SessionEvent> Session::poll(std::uint64_t sequence, double wait_s) const {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, std::chrono::duration<double>(wait_s),
                          [&] { return impl_->events.size() > sequence; });
  const auto& events = impl_->events;
  const auto first = std::min<std::size_t>(sequence, events.size());
  return {events.begin() + static_cast<std::ptrdiff_t>(first), events.end()};
}

RunResult Session::result() const {
  const Impl& impl = *impl_;
  const std::lock_guard lock(impl.mutex);
  if (impl.shell) return impl.summarise(impl.shell->snapshot(), impl.now_s() - impl.run_begin_s);
  RunResult result = impl.summarise(impl.final_snapshot, impl.run_s);
  result.trace = impl.trace.spans();
  return result;
}

RunResult Session::simulate() const {
  const Impl& impl = *impl_;
  VirtualCosts costs{.host_workers = impl.num_host_workers()};
  const auto num_devices = static_cast<int>(impl.devices.budgets().size());
  if (num_devices > 1) costs.crowding = measure_crowding(num_devices);
  if (!impl.trials.empty()) costs.copy_bytes_per_s = impl.trials[0]->planned.copy_bytes_per_s;
  for (std::size_t d = 0; d < impl.devices.size(); ++d) {
    costs.link_bytes_per_s.push_back(static_cast<double>(impl.devices[d].link_bytes_per_s));
    if (impl.trials.empty()) continue;
    const SessionTrial& first = *impl.trials[0];
    costs.slowdown.push_back(slowdown_of(impl.plan_device(first, d), first.profile));
  }
  VirtualShell shell(impl.engine_config(), costs);
  TraceRecorder trace(impl.config.max_trace_spans);
  shell.on_action = [&](const Action& action) { trace.on_action(action); };
  shell.on_completion = [&](const Done& done) { trace.on_done(done); };
  for (std::size_t t = 0; t < impl.trials.size(); ++t) {
    const SessionTrial& trial = *impl.trials[t];
    trace.submit(JobId(t), trial.plan);
    shell.submit(JobId(t), trial.plan, trial.planned.summary.home_bytes);
  }
  for (int d : impl.devices.gone()) shell.remove_device(DeviceId(d));
  shell.run();
  RunResult result = impl.summarise(snapshot_of(shell.engine()), shell.now_s());
  result.trace = trace.spans();
  return result;
}

}  // namespace spillway
