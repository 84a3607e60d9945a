#include "spillway/session.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/base/config_check.h"
#include "core/base/default_floats.h"
#include "spilling/tiers/home_store.h"
#include "trainer/compute/counting_allocator.h"
#include "trainer/config/config_fields.h"
#include "trainer/session/session_impl.h"

namespace spillway {
namespace {

/// A GPU needs a share for activations. Throws ConfigError (`activation_share`).
MemorySplit split_of(const SessionConfig& config) {
  constexpr double kOfGpus = 0.25;
  const bool has_gpu =
      std::ranges::count(config.devices, DeviceKind::cuda, &DeviceConfig::kind) > 0;
  const double share = config.activation_share;
  ConfigCheck check;
  FieldCheck(check).field("activation_share", share, kActivationShare, "");
  check.finish();
  return {share > 0 || !has_gpu ? share : kOfGpus};
}

/// All that is wrong with the configuration is thrown at once.
DeviceList open_devices(const SessionConfig& config) {
  ConfigCheck check;
  std::optional<DeviceList> devices;
  check.run([&] { devices.emplace(config.devices, split_of(config)); });
  check.run([&] { require_home_path(config.offload_path); });
  check.require(config.max_events > 0, "max_events", "is 0; keep at least the last one");
  check.require(config.max_history > 0, "max_history", "is 0; keep at least the last step");
  if (config.early_terminate) check.run([&] { require_valid(*config.early_terminate); });
  check.finish();
  return std::move(*devices);
}

/// With the lists.
TrialResult whole_result(const SessionTrial& trial) {
  const auto list = [](const auto& values) { return std::vector(values.begin(), values.end()); };
  TrialResult result = trial.result;
  result.dropped_steps = trial.history.num_dropped();
  result.losses = list(trial.history.losses());
  result.gradient_norms = list(trial.history.gradient_norms());
  result.eval_losses = list(trial.history.eval_losses());
  return result;
}

}  // namespace

Session::Impl::Impl(SessionConfig session_config)
    : config(std::move(session_config)),
      policy(make_policy(config.policy)),
      allocator(make_allocator(config.sharing)),
      devices(open_devices(config)),
      home_store(make_home_store(config.offload_path, *devices[0].device)),
      host(config.host_memory, *home_store),
      pilot(config.pilot_cache),
      trace(config.max_trace_spans),
      events(config.max_events),
      store(config, devices.exact_kind(),
            [this](JobId id, const TrialCheckpoints::Saved& saved) { on_saved(id, saved); }),
      pool(num_host_workers()) {}

int Session::Impl::num_host_workers() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

double Session::Impl::now_s() const {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

EngineConfig Session::Impl::engine_config() const {
  EngineConfig engine{
      .host_budget = config.host_memory, .policy = policy, .double_buffer = config.double_buffer};
  engine.split = devices[0].device->split();
  for (std::size_t d = 0; d < devices.size(); ++d) {
    engine.device_budgets.push_back(devices[d].budget);
  }
  return engine;
}

/// Prepares trials and devices before anything is submitted to the shell.
Shell& Session::Impl::begin_run() {
  const MutexLock lock(mutex);
  std::vector<Device*> all_devices;
  for (std::size_t d = 0; d < devices.size(); ++d) all_devices.push_back(devices[d].device.get());
  for (const auto& trial : trials) {
    if (trial->checkpoints && !trial->ended()) trial->checkpoints->open();
  }
  run_begin_s = now_s();
  trace = TraceRecorder(config.max_trace_spans);
  controller = make_controller();
  deciding = false;
  shell = std::make_unique<Shell>(engine_config(), all_devices, host, pool, *this, *this, &trace,
                                  Patience{.least_s = config.device_timeout_s}, touched_at_start(),
                                  devices.gone());
  begin_rungs();
  if (!devices.gone().empty()) {
    shell->call([this] {
      const MutexLock call_lock(mutex);
      refit_all();
    });
  }
  if (stop_asked) {
    controller->stop();
    shell->stop_all();
  }
  return *shell;
}

/// Trials that have ended take only their numbers. The shell's observer takes the mutex.
void Session::Impl::submit_to(Shell& to) {
  for (std::size_t t = 0;; ++t) {
    std::shared_ptr<const JobPlan> plan;
    Bytes home_bytes = 0;
    bool paused = false;
    std::int64_t hold_step = kNoStep;
    {
      const MutexLock lock(mutex);
      if (t == trials.size()) return;
      home_bytes = trials[t]->planned.summary.home_bytes;
      if (!trials[t]->ended()) {
        plan = trials[t]->plan;
        paused = controller->begins_paused();
        hold_step = controller->hold_step(JobId(t));
      }
    }
    to.submit(JobId(t), std::move(plan), home_bytes, paused, hold_step);
  }
}

/// `failure`: why the shell ended before some trials did; empty: all have ended.
void Session::Impl::end_run(const std::string& failure) {
  std::unique_ptr<Shell> ended;
  {
    const MutexLock lock(mutex);
    if (!shell) return;
    final_snapshot = shell->snapshot();
    run_s = now_s() - run_begin_s;
    ended = std::move(shell);
    controller.reset();
  }
  ended.reset();  // without the lock, which what it waits for may take
  const MutexLock lock(mutex);
  stop_asked = false;
  devices.settle();
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!trials[t]->ended()) end(JobId(t), TrialPhase::stopped, failure);
  }
}

RunResult Session::Impl::summarise(const EngineSnapshot& snapshot, double wall_s) const {
  RunResult result{.host_budget_bytes = config.host_memory,
                   .host_peak_bytes = snapshot.host_peak,
                   .wall_s = wall_s};
  for (const auto& trial : trials) result.trials.push_back(whole_result(*trial));
  double hidden_s = 0;
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
    result.copy_wait_s += counters.stall_s;
    hidden_s += counters.hidden_s;
  }
  if (result.copy_s > 0) result.copy_hidden_share = hidden_s / result.copy_s;
  return result;
}

Session::Session(SessionConfig config) {
  initialize_torch();
  impl_ = std::make_unique<Impl>(std::move(config));
}

Session::~Session() = default;

void Session::run() {
  Impl& impl = *impl_;
  if (impl.config.estimate) throw Error("a session with estimated costs plans only");
  const DefaultFloats floats;  // sums of losses
  check();
  try {
    Shell& shell = impl.begin_run();
    impl.submit_to(shell);
    shell.run();
  } catch (...) {
    impl.end_run("run() ended with an error: " + current_reason());
    throw;
  }
  impl.end_run("");
  impl.store.flush();
}

void Session::stop() {
  const MutexLock lock(impl_->mutex);
  impl_->stop_asked = true;
  if (!impl_->shell) return;
  impl_->controller->stop();
  impl_->shell->stop_all();
}

std::vector<SessionEvent> Session::poll(std::uint64_t sequence, double wait_s) const {
  return impl_->events.poll(sequence, wait_s);
}

RunResult Session::result() const {
  const Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  if (impl.shell) return impl.summarise(impl.shell->snapshot(), impl.now_s() - impl.run_begin_s);
  RunResult result = impl.summarise(impl.final_snapshot, impl.run_s);
  result.trace = impl.trace.spans();
  return result;
}

}  // namespace spillway
