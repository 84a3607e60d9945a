#include "trainer/session.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "core/config_check.h"
#include "models/compute_type.h"
#include "models/sample_check.h"
#include "trainer/check_sizes.h"
#include "trainer/counting_allocator.h"
#include "trainer/home_store.h"
#include "trainer/range_runner.h"
#include "trainer/session_impl.h"

namespace spillway {
namespace {

/// All that is wrong with the configuration is thrown at once.
/// A GPU cannot do without.
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
  if (config.early_terminate) check.run([&] { require_valid(*config.early_terminate); });
  check.finish();
  return std::move(*devices);
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
    case TrialState::stopped_early:
      return "stopped early";
  }
  return "?";
}

bool is_final(TrialState state) {
  return state > TrialState::running && state != TrialState::stopped;
}

std::optional<TrialState> trial_state(std::string_view text) {
  for (const auto state : {TrialState::waiting, TrialState::running, TrialState::done,
                           TrialState::failed, TrialState::stopped, TrialState::stopped_early}) {
    if (text == to_string(state)) return state;
  }
  return std::nullopt;
}

Session::Impl::Impl(SessionConfig session_config)
    : config(std::move(session_config)),
      policy(make_policy(config.policy)),
      allocator(make_allocator(config.sharing)),
      devices(open_devices(config)),
      home_store(make_home_store(config.home_path, *devices[0].device)),
      host(config.host_memory, *home_store),
      pilot(config.pilot_cache),
      pool(num_host_workers()),
      trace(config.max_trace_spans) {}

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
    if (is_gpu && shell && !pilot.knows(model.spec, device.get())) {
      throw Error(
          "what this model costs on a GPU is not known, and the GPUs are at work; submit it before "
          "the run, or with a pilot cache that knows it");
    }
  }
  return pilot.measure(model, device.get());
}

void Session::Impl::require_room_for_home(const SessionTrial& trial) const {
  Bytes homes = trial.planned.summary.home_bytes;
  for (const auto& other : trials) homes += other->planned.summary.home_bytes;
  require_home_room(config.home_path, std::min(homes, config.host_memory));
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

void Session::Impl::end_run() {
  std::unique_ptr<Shell> ended;  // goes after the lock, which what it waits for may take
  const std::lock_guard lock(mutex);
  final_snapshot = shell->snapshot();
  run_s = now_s() - run_begin_s;
  ended = std::move(shell);
  controller.reset();
  halving.reset();
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

/// Of what is valid; nothing is planned.
static std::unique_ptr<SessionTrial> make_entry(TrialConfig trial) {
  trial.validate();
  if (!trial.model) throw ConfigError("model", 0, "is missing; give a function that makes it");
  if (!trial.data || !trial.data->train) throw ConfigError("data", 0, "is missing; give some");
  if (trial.train.reduction_groups == 0)
    trial.train.reduction_groups = default_groups(trial.train.virtual_nodes);
  auto entry = std::make_unique<SessionTrial>();
  const std::int64_t vn_size = trial.train.batch_size / trial.train.virtual_nodes;
  std::unique_ptr<Model> model = trial.model(vn_size);
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
  entry->planned.summary.home_bytes = impl_->home_for_all_lanes(*entry);
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
  if (resumes) impl_->continue_from(*entry, std::move(*newest.generation));
  if (impl_->journal) impl_->enter(*entry);
  const JobId id = impl_->add(std::move(entry));
  if (resumes) impl_->tell_resumed(id, newest.findings);
  return id;
}

const TrialPlan& Session::plan(JobId trial) const {
  return impl_->trials.at(trial.index())->planned.summary;
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
  check();
  std::vector<std::shared_ptr<const JobPlan>> plans;
  std::vector<std::int64_t> hold_steps;
  {
    const std::lock_guard lock(impl.mutex);
    for (const auto& trial : impl.trials) {
      if (trial->checkpoints) trial->checkpoints->open();
    }
    std::vector<Device*> devices;
    for (std::size_t d = 0; d < impl.devices.size(); ++d) {
      devices.push_back(impl.devices[d].device.get());
    }
    impl.run_begin_s = impl.now_s();
    impl.controller = impl.make_controller();
    impl.deciding = false;
    impl.shell = std::make_unique<Shell>(
        impl.engine_config(), devices, impl.host, impl.pool, impl, impl, &impl.trace,
        Patience{.least_s = impl.config.device_timeout_s}, impl.touched_at_start());
    for (int d : impl.devices.gone()) impl.shell->remove_device(DeviceId(d), "it was removed");
    impl.begin_halving();
    for (const auto& trial : impl.trials) {
      hold_steps.push_back(impl.hold_step(JobId(plans.size())));
      plans.push_back(trial->plan);
      trial->paused = impl.controller->shares();
    }
    if (impl.stop_asked) impl.shell->stop_all();
  }
  for (std::size_t t = 0; t < plans.size(); ++t) {
    impl.shell->submit(JobId(t), plans[t], impl.trials[t]->planned.summary.home_bytes,
                       impl.controller->shares(), hold_steps[t]);
  }
  try {
    impl.shell->run();
  } catch (...) {
    impl.end_run();
    throw;
  }
  impl.end_run();
  if (impl.journal) impl.journal->flush();
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

}  // namespace spillway
