#include "spillway/session.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/config_check.h"
#include "core/base/default_floats.h"
#include "models/base/compute_type.h"
#include "models/data/sample_check.h"
#include "spilling/tiers/home_store.h"
#include "trainer/compute/counting_allocator.h"
#include "trainer/compute/range_runner.h"
#include "trainer/planning/check_sizes.h"
#include "trainer/planning/trial_model.h"
#include "trainer/session/session_impl.h"

namespace spillway {
namespace {

/// A GPU needs a share for activations. Throws ConfigError (`activation_share`).
MemorySplit split_of(const SessionConfig& config) {
  constexpr double kOfGpus = 0.25;
  const bool has_gpu = std::ranges::count(config.devices, "cuda", &DeviceConfig::kind) > 0;
  const double share = config.activation_share;
  if (!(share >= 0 && share <= kMostActivations)) {
    throw ConfigError(
        "activation_share", 0,
        "is " + std::to_string(share) + ", must be 0 to " + std::to_string(kMostActivations));
  }
  return {share > 0 || !has_gpu ? share : kOfGpus};
}

/// All that is wrong with the configuration is thrown at once.
DeviceList open_devices(const SessionConfig& config) {
  ConfigCheck check;
  std::optional<DeviceList> devices;
  check.run([&] { devices.emplace(config.devices, split_of(config)); });
  check.run([&] { require_home_path(config.home_path); });
  check.require(make_policy(config.policy) != nullptr, "scheduling.policy",
                "is '" + config.policy + "', must be lrtf, srtf, fifo, round_robin or random");
  check.require(make_allocator(config.sharing) != nullptr || config.sharing == "none",
                "scheduling.sharing",
                "is '" + config.sharing + "', must be none, priority, wfs or fill");
  check.require(config.max_events > 0, "max_events", "is 0; keep at least the last one");
  check.require(config.max_history > 0, "max_history", "is 0; keep at least the last step");
  if (config.early_terminate) check.run([&] { require_valid(*config.early_terminate); });
  check.finish();
  return std::move(*devices);
}

}  // namespace

Session::Impl::Impl(SessionConfig session_config)
    : config(std::move(session_config)),
      policy(make_policy(config.policy)),
      allocator(make_allocator(config.sharing)),
      devices(open_devices(config)),
      home_store(make_home_store(config.home_path, *devices[0].device)),
      host(config.host_memory, *home_store),
      pilot(config.pilot_cache),
      trace(config.max_trace_spans),
      events(config.max_events),
      pool(num_host_workers()) {}

int Session::Impl::num_host_workers() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

double Session::Impl::now_s() const {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Profile Session::Impl::profile_of(const Model& model) {
  if (config.estimate) return pilot.estimate(model.spec);
  std::shared_ptr<Device> device;  // shared: it may leave meanwhile
  {
    const std::lock_guard lock(mutex);
    device = devices.first_present();
    const bool is_gpu = device && device->gpu() >= 0;
    if (!is_gpu) device.reset();
  }
  return pilot.measure(model, device.get());
}

void Session::Impl::require_room_for_home(const SessionTrial& trial) const {
  Bytes homes = trial.planned.summary.home_bytes;
  for (const auto& other : trials) {
    if (!other->ended()) homes += other->planned.summary.home_bytes;
  }
  require_home_room(config.home_path, std::min(homes, config.host_memory),
                    trial.planned.summary.home_bytes);
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

/// Takes what trials and devices need of this session before anything is submitted to the shell.
void Session::Impl::begin_run() {
  const std::lock_guard lock(mutex);
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
      const std::lock_guard call_lock(mutex);
      refit_all();
    });
  }
  if (!stop_asked) return;
  controller->stop();
  shell->stop_all();
}

/// Those that have ended take only their numbers.
void Session::Impl::submit_to_shell() {
  for (std::size_t t = 0; t < trials.size(); ++t) {
    SessionTrial& trial = *trials[t];
    std::shared_ptr<const JobPlan> plan;
    std::int64_t hold = kNoStep;
    bool paused = false;
    {
      const std::lock_guard lock(mutex);
      if (!trial.ended()) {
        plan = trial.plan;
        paused = controller->begins_paused();
        hold = controller->hold_step(JobId(t));
      }
    }
    shell->submit(JobId(t), plan, trial.planned.summary.home_bytes, paused, hold);
  }
}

/// `failure`: why the shell ended with trials that have not; empty: all have ended.
void Session::Impl::end_run(const std::string& failure) {
  std::unique_ptr<Shell> ended;
  {
    const std::lock_guard lock(mutex);
    if (!shell) return;
    final_snapshot = shell->snapshot();
    run_s = now_s() - run_begin_s;
    ended = std::move(shell);
    controller.reset();
  }
  ended.reset();  // without the lock, which what it waits for may take
  const std::lock_guard lock(mutex);
  stop_asked = false;
  devices.settle();
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!trials[t]->ended()) set_state(JobId(t), TrialState::stopped, failure);
  }
}

TrialResult Session::Impl::whole_result(const SessionTrial& trial) {
  const auto list = [](const auto& values) { return std::vector(values.begin(), values.end()); };
  TrialResult result = trial.result;
  result.dropped_steps = trial.history.num_dropped();
  result.losses = list(trial.history.losses());
  result.gradient_norms = list(trial.history.gradient_norms());
  result.eval_losses = list(trial.history.eval_losses());
  return result;
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

/// Of what is valid; nothing is planned.
static std::unique_ptr<SessionTrial> make_entry(TrialConfig trial) {
  std::unique_ptr<Model> model = make_valid_model(trial);
  if (!model) throw ConfigError("model", 0, "is missing; give a function that makes it");
  if (!trial.data || !trial.data->train) throw ConfigError("data", 0, "is missing; give some");
  if (trial.train.reduction_groups == 0)
    trial.train.reduction_groups = default_groups(trial.train.virtual_nodes);
  auto entry = std::make_unique<SessionTrial>();
  const std::int64_t vn_size = trial.train.batch_size / trial.train.virtual_nodes;
  if (trial.train.dtype == "bf16") compute_with(model->spec, DType::bf16);
  if (trial.train.gradient_dtype == "bf16") send_gradients_as(model->spec, DType::bf16);
  model->spec.validate();
  check_shape(*trial.data, model->spec, vn_size);
  entry->model = std::move(model);
  entry->config = std::move(trial);
  return entry;
}

std::vector<ContractDifference> Session::changes(TrialConfig trial) {
  const auto entry = make_entry(std::move(trial));
  return impl_->journal ? impl_->changes(*entry) : std::vector<ContractDifference>{};
}

JobId Session::submit(TrialConfig config) {
  impl_->require_no_run();
  auto entry = make_entry(std::move(config));
  const TrialConfig& trial = entry->config;
  const auto model = entry->model;
  if (!trial.client_id.empty()) {
    if (const auto known = impl_->find_trial(*entry)) return *known;
    if (impl_->journal && !trial.checkpoint.resume) impl_->recall(*entry);
  }
  std::unique_lock lock(impl_->mutex);
  if (entry->ended()) return impl_->add(std::move(entry));
  check_sizes(trial.name, model->spec, trial.train.virtual_nodes, impl_->devices.budgets());
  lock.unlock();
  entry->profile = impl_->profile_of(*model);
  entry->times = impl_->measure_kinds(*model);
  auto newest = impl_->open_checkpoints(JobId(impl_->trials.size()), *entry);
  lock.lock();
  impl_->choose_lanes(*entry);
  entry->planned.summary.home_bytes = impl_->planner.home_for_all_lanes(*entry);
  impl_->require_room_for_home(*entry);
  entry->plan = entry->planned.plan;
  entry->job = std::make_unique<TrainingJob>(model, entry->config, entry->plan);
  entry->result = {.name = trial.name,
                   .parameters = model->spec.num_parameters(),
                   .num_shards = entry->planned.summary.num_shards,
                   .virtual_nodes = trial.train.virtual_nodes,
                   .lanes = entry->planned.summary.lanes,
                   .order = entry->planned.summary.order,
                   .training_state_bytes = entry->planned.summary.training_state_bytes};
  entry->planned.summary.checkpoint_bytes =
      most_checkpoint_bytes(entry->config, model->spec, entry->job->places());
  impl_->require_room_for_checkpoints(*entry);
  const bool resumes = newest.generation.has_value();
  const std::uint64_t generation = resumes ? newest.generation->number() : 0;
  entry->history = TrialHistory(impl_->config.max_history, impl_->rungs());
  if (resumes) impl_->continue_from(*entry, std::move(*newest.generation));
  if (impl_->journal) impl_->enter(*entry);
  const JobId id = impl_->add(std::move(entry));
  impl_->tell_damage(id, newest.findings);
  if (resumes) {
    SessionEvent event = impl_->event_of(id, SessionEvent::Kind::resumed);
    event.generation = generation;
    impl_->events.add(std::move(event));
  }
  return id;
}

const TrialPlan& Session::plan(JobId trial) const {
  return impl_->trials.at(trial.index())->planned.summary;
}

/// The engine's jobs are those that run() began with.
void Session::Impl::require_no_run() const {
  const std::lock_guard lock(mutex);
  if (!shell) return;
  throw Error(
      "a trial was submitted while run() trains others, which is not possible; submit it before "
      "run(), or once run() has returned, and call run() again");
}

/// Under mutex. Of one that has ended before this session, others hear so.
JobId Session::Impl::add(std::unique_ptr<SessionTrial> trial) {
  const JobId id(trials.size());
  trials.push_back(std::move(trial));
  if (trials.back()->ended()) add_event(id, SessionEvent::Kind::state);
  return id;
}

void Session::run() {
  Impl& impl = *impl_;
  if (impl.config.estimate) throw Error("a session with estimated costs plans only");
  const DefaultFloats floats;  // sums of losses
  check();
  try {
    impl.begin_run();
    impl.submit_to_shell();
    impl.shell->run();
  } catch (...) {
    impl.end_run("run() ended with an error: " + current_reason());
    throw;
  }
  impl.end_run("");
  if (impl.journal) impl.journal->flush();
}

void Session::stop() {
  const std::lock_guard lock(impl_->mutex);
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
  const std::lock_guard lock(impl.mutex);
  if (impl.shell) return impl.summarise(impl.shell->snapshot(), impl.now_s() - impl.run_begin_s);
  RunResult result = impl.summarise(impl.final_snapshot, impl.run_s);
  result.trace = impl.trace.spans();
  return result;
}

}  // namespace spillway
