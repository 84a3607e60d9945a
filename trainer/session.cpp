#include "trainer/session.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "core/error.h"
#include "scheduler/policy.h"
#include "scheduler/trace_recorder.h"
#include "scheduler/virtual_shell.h"
#include "trainer/check_sizes.h"
#include "trainer/counting_allocator.h"
#include "trainer/home_store.h"
#include "trainer/host_rates.h"
#include "trainer/optimizer.h"
#include "trainer/pilot.h"
#include "trainer/plan_trial.h"
#include "trainer/shell.h"
#include "trainer/tbb_pool.h"
#include "trainer/training_job.h"

namespace spillway {
namespace {

struct Trial {
  TrialConfig config;
  PlannedTrial planned;
  std::unique_ptr<TrainingJob> job;
  TrialResult result;
  double started_s = 0, last_s = 0, gradient_norm = 0;
};

/// Hands calls to the trial they belong to.
class TrialRunner final : public OpRunner {
 public:
  explicit TrialRunner(std::vector<std::unique_ptr<Trial>>& trials) : trials_(trials) {}
  void admit(JobId job, std::byte* home) override { trials_[job.index()]->job->admit(home); }
  void run_op(const OpCall& call) override {
    const MeterScope scope(call.device->activations());
    trials_[call.job.index()]->job->run_op(call);
  }
  void run_host_op(const HostCall& call) override {
    trials_[call.job.index()]->job->run_host_op(call);
  }

 private:
  std::vector<std::unique_ptr<Trial>>& trials_;
};

constexpr double kMaxSlowdown = 1000;

std::vector<std::unique_ptr<Device>> make_devices(const std::vector<DeviceConfig>& configs) {
  if (configs.empty()) throw ConfigError("devices", 0, "is empty; name at least one device");
  std::vector<std::unique_ptr<Device>> devices;
  for (std::size_t d = 0; d < configs.size(); ++d) {
    const std::string field = "devices[" + std::to_string(d) + "]";
    if (configs[d].kind != "cpu") {
      throw ConfigError(field + ".kind", 0, "is '" + configs[d].kind + "', must be cpu");
    }
    if (configs[d].memory < kPage || configs[d].memory > Bytes{1} << 48) {
      throw ConfigError(field + ".memory", 0,
                        "is " + format_bytes(configs[d].memory) + ", must be 4 KiB to 256 TiB");
    }
    if (configs[d].link_bytes_per_s != 0 && configs[d].link_bytes_per_s < 1_MiB) {
      throw ConfigError(field + ".link", 0,
                        "is " + format_rate(configs[d].link_bytes_per_s) +
                            ", must be 0 (none) or at least " + format_rate(1_MiB));
    }
    if (!(configs[d].slowdown >= 1 && configs[d].slowdown <= kMaxSlowdown)) {
      throw ConfigError(field + ".slowdown", 0,
                        "is " + std::to_string(configs[d].slowdown) + ", must be 1 to 1000");
    }
    devices.push_back(make_cpu_device("cpu:" + std::to_string(d), configs[d].memory,
                                      {.link_bytes_per_s = configs[d].link_bytes_per_s,
                                       .slowdown = configs[d].slowdown,
                                       .fault = configs[d].fault}));
  }
  return devices;
}

std::shared_ptr<const Policy> checked_policy(const std::string& name) {
  auto policy = make_policy(name);
  if (!policy) {
    throw ConfigError("scheduling.policy", 0,
                      "is '" + name + "', must be lrtf, srtf, fifo, round_robin or random");
  }
  return policy;
}

}  // namespace

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

struct Session::Impl final : ShellObserver {
  explicit Impl(SessionConfig session_config)
      : config(std::move(session_config)),
        policy(checked_policy(config.policy)),
        devices(make_devices(config.devices)),
        home_store(make_home_store(config.home_path, *devices.front())),
        host(config.host_memory, *home_store),
        pilot(config.pilot_cache),
        pool(num_host_workers()),
        runner(trials),
        trace(config.max_trace_spans) {}

  static int num_host_workers() {
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }
  double now_s() const { return std::chrono::duration<double>(Clock::now() - start).count(); }

  void on_started(JobId id) override {
    const std::lock_guard lock(mutex);
    Trial& trial = *trials[id.index()];
    trial.started_s = now_s();
    trial.result.state = TrialState::running;
    add_event(id, SessionEvent::Kind::state);
  }

  void on_committed(JobId id, std::int64_t step) override {
    const std::lock_guard lock(mutex);
    refresh(id, step);
    add_event(id, SessionEvent::Kind::step);
  }

  void on_ended(JobId id, JobEnd end, const std::string& reason) override {
    const std::lock_guard lock(mutex);
    Trial& trial = *trials[id.index()];
    refresh(id, trial.result.steps);
    trial.result.state = end == JobEnd::done     ? TrialState::done
                         : end == JobEnd::failed ? TrialState::failed
                                                 : TrialState::stopped;
    trial.result.reason = reason;
    add_event(id, SessionEvent::Kind::state);
  }

  /// Takes over what the trial has reached. Under mutex.
  void refresh(JobId id, std::int64_t step) {
    Trial& trial = *trials[id.index()];
    TrialResult& result = trial.result;
    const TrainingJob::Progress news = trial.job->take_progress();
    if (step > result.steps) trial.last_s = now_s();
    result.steps = step;
    result.losses.insert(result.losses.end(), news.losses.begin(), news.losses.end());
    result.weights_xxh3 = news.weights_xxh3;
    if (!result.losses.empty()) {
      result.first_loss = result.losses.front();
      result.final_loss = result.losses.back();
    }
    const double elapsed = trial.last_s - trial.started_s;
    if (step > 0 && elapsed > 0) {
      result.tokens_per_s = news.weight_per_step * static_cast<double>(step) / elapsed;
    }
    for (const auto& [eval_step, loss] : news.eval_losses) {
      result.eval_losses.emplace_back(eval_step, loss);
      result.eval_loss = loss;
      add_event(id, SessionEvent::Kind::eval);
      events.back().step = eval_step;
      events.back().loss = loss;
    }
    trial.gradient_norm = news.gradient_norm;
  }

  void add_event(JobId id, SessionEvent::Kind kind) {
    const Trial& trial = *trials[id.index()];
    const TrialResult& result = trial.result;
    SessionEvent event{.sequence = events.size() + 1,
                       .time_s = now_s(),
                       .trial = id,
                       .kind = kind,
                       .state = result.state,
                       .step = result.steps,
                       .loss = result.final_loss.value_or(0),
                       .learning_rate = learning_rate_at(
                           trial.config.train, std::max<std::int64_t>(result.steps, 1) - 1),
                       .gradient_norm = trial.gradient_norm,
                       .tokens_per_s = result.tokens_per_s,
                       .reason = result.reason,
                       .weights_xxh3 = result.weights_xxh3};
    events.push_back(std::move(event));
    changed.notify_all();
  }

  Profile profile_of(const Model& model) {
    return config.estimate ? pilot.estimate(model.spec) : pilot.measure(model);
  }

  /// The homes of a trial beside those submitted, as many as the budget lets lie there at once.
  void require_room_for_home(const TrialPlan& plan) const {
    Bytes homes = plan.home_bytes;
    for (const auto& trial : trials) homes += trial->planned.summary.home_bytes;
    require_home_room(config.home_path, std::min(homes, config.host_memory));
  }

  EngineConfig engine_config() const {
    EngineConfig engine{
        .host_budget = config.host_memory, .policy = policy, .double_buffer = config.double_buffer};
    for (const auto& device : devices) engine.device_budgets.push_back(device->budget());
    return engine;
  }

  RunResult summarise(const EngineSnapshot& snapshot, double wall_s) const {
    RunResult result{.host_budget_bytes = config.host_memory,
                     .host_peak_bytes = snapshot.host_peak,
                     .wall_s = wall_s};
    for (const auto& trial : trials) result.trials.push_back(trial->result);
    double stall_s = 0;
    for (std::size_t d = 0; d < snapshot.devices.size(); ++d) {
      const DeviceCounters& counters = snapshot.devices[d];
      result.devices.push_back({.kind = devices[d]->kind(),
                                .budget_bytes = devices[d]->budget(),
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

  SessionConfig config;
  std::shared_ptr<const Policy> policy;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Store> home_store;
  HostArena host;
  Pilot pilot;
  std::vector<std::unique_ptr<Trial>> trials;
  TbbPool pool;
  TrialRunner runner;
  TraceRecorder trace;  // of the shell's thread while run() runs
  const Clock::time_point start = Clock::now();

  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  // Under mutex:
  std::vector<SessionEvent> events;
  std::unique_ptr<Shell> shell;  // while run() runs
  EngineSnapshot final_snapshot;
  double run_begin_s = 0, run_s = 0;
  bool stop_asked = false;
};

Session::Session(SessionConfig config) {
  initialize_torch();
  impl_ = std::make_unique<Impl>(std::move(config));
}

Session::~Session() = default;

JobId Session::submit(TrialConfig trial) {
  trial.train.validate();
  if (trial.train.reduction_groups == 0) {
    trial.train.reduction_groups = default_groups(trial.train.virtual_nodes);
  }
  const std::shared_ptr<const Model> model =
      trial.model(trial.train.batch_size / trial.train.virtual_nodes);
  model->spec.validate();
  std::vector<Bytes> budgets;
  for (const auto& device : impl_->devices) budgets.push_back(device->budget());
  check_sizes(trial.name, model->spec, trial.train.virtual_nodes, budgets);
  auto entry = std::make_unique<Trial>();
  entry->planned = plan_trial(trial, model->spec, impl_->profile_of(*model), budgets,
                              impl_->config.host_memory, impl_->config.double_buffer);
  impl_->require_room_for_home(entry->planned.summary);
  entry->job = std::make_unique<TrainingJob>(model, trial, entry->planned.plan);
  entry->result = {.name = trial.name,
                   .parameters = model->spec.num_parameters(),
                   .num_shards = entry->planned.summary.num_shards,
                   .virtual_nodes = trial.train.virtual_nodes,
                   .lanes = trial.train.lanes,
                   .order = entry->planned.summary.order,
                   .training_state_bytes = entry->planned.summary.training_state_bytes};
  entry->config = std::move(trial);
  const std::lock_guard lock(impl_->mutex);
  impl_->trials.push_back(std::move(entry));
  return JobId(impl_->trials.size() - 1);
}

const TrialPlan& Session::plan(JobId trial) const {
  return impl_->trials.at(trial.index())->planned.summary;
}

void Session::run() {
  Impl& impl = *impl_;
  if (impl.config.estimate) throw Error("a session with estimated costs plans only");
  std::vector<Device*> devices;
  for (const auto& device : impl.devices) devices.push_back(device.get());
  {
    const std::lock_guard lock(impl.mutex);
    impl.run_begin_s = impl.now_s();
    impl.shell = std::make_unique<Shell>(impl.engine_config(), devices, impl.host, impl.pool,
                                         impl.runner, impl, &impl.trace);
  }
  for (std::size_t t = 0; t < impl.trials.size(); ++t) {
    impl.shell->submit(JobId(t), impl.trials[t]->planned.plan);
  }
  {
    const std::lock_guard lock(impl.mutex);
    if (impl.stop_asked) impl.shell->stop_all();
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
  const auto num_devices = static_cast<int>(impl.devices.size());
  if (num_devices > 1) costs.crowding = measure_crowding(num_devices);
  if (!impl.trials.empty()) costs.copy_bytes_per_s = impl.trials[0]->planned.copy_bytes_per_s;
  for (const DeviceConfig& device : impl.config.devices) {
    costs.link_bytes_per_s.push_back(static_cast<double>(device.link_bytes_per_s));
  }
  VirtualShell shell(impl.engine_config(), costs);
  TraceRecorder trace(impl.config.max_trace_spans);
  shell.on_action = [&](const Action& action) { trace.on_action(action); };
  shell.on_completion = [&](const Done& done) { trace.on_done(done); };
  for (std::size_t t = 0; t < impl.trials.size(); ++t) {
    trace.submit(JobId(t), impl.trials[t]->planned.plan);
    shell.submit(JobId(t), impl.trials[t]->planned.plan);
  }
  shell.run();
  RunResult result = impl.summarise(snapshot_of(shell.engine()), shell.now_s());
  result.trace = trace.spans();
  return result;
}

}  // namespace spillway
