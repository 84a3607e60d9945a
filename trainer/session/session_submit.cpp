#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/os/disk.h"
#include "models/base/compute_type.h"
#include "models/data/sample_check.h"
#include "spilling/tiers/home_store.h"
#include "trainer/config/batch_split.h"
#include "trainer/config/host_groups.h"
#include "trainer/planning/check_sizes.h"
#include "trainer/planning/trial_model.h"
#include "trainer/session/session_impl.h"

namespace spillway {
namespace {

/// Throws ConfigError unless the configuration is valid. Plans nothing.
std::unique_ptr<SessionTrial> make_entry(TrialConfig trial) {
  std::unique_ptr<Model> model = make_valid_model(trial);
  if (!model) throw ConfigError("model", 0, "is missing; give a function that makes it");
  if (!trial.data || !trial.data->train) throw ConfigError("data", 0, "is missing; give samples");
  trial.train.virtual_nodes = virtual_nodes_of(trial.train);
  trial.train.reduction_groups = reduction_groups_of(trial.train);
  auto entry = std::make_unique<SessionTrial>();
  const std::int64_t vn_size = trial.train.batch_size / trial.train.virtual_nodes;
  compute_with(model->spec, trial.train.dtype == FloatType::bf16 ? DType::bf16 : DType::f32);
  if (trial.train.gradient_dtype == FloatType::bf16) send_gradients_as(model->spec, DType::bf16);
  model->spec.validate();
  check_shape(*trial.data, model->spec, vn_size);
  entry->model = std::move(model);
  entry->config = std::move(trial);
  return entry;
}

/// Where more hosts meet again, each has fewer reduction groups, and so fewer lanes.
void limit_lanes(TrainConfig& train, const HostsConfig& hosts) {
  if (!hosts.meets_again || train.reduction_groups < hosts.size) return;
  const int own = groups_of_host(train, team_of(hosts));
  train.data_parallel = std::min(train.data_parallel, own);
  train.max_data_parallel = std::min(train.max_data_parallel, own);
}

/// If this host cannot train a trial that it has announced, the others must not wait for it.
class LeaveOnError {
 public:
  explicit LeaveOnError(Hosts* hosts) : hosts_(hosts) {}
  LeaveOnError(const LeaveOnError&) = delete;
  LeaveOnError& operator=(const LeaveOnError&) = delete;
  ~LeaveOnError() {
    if (hosts_ && std::uncaught_exceptions() > before_) hosts_->leave("a trial was refused");
  }

 private:
  Hosts* const hosts_;
  const int before_ = std::uncaught_exceptions();
};

}  // namespace

void Session::Impl::measure_costs_of(SessionTrial& trial) {
  const Model& model = *trial.model;
  if (config.estimate) {
    trial.profile = pilot.estimate(model.spec);
    return;
  }
  std::shared_ptr<Device> device;  // shared: it may leave meanwhile
  {
    const MutexLock lock(mutex);
    device = devices.first_present();
  }
  Device* const gpu = device && device->gpu() >= 0 ? device.get() : nullptr;
  trial.profile = pilot.measure(model, gpu);
  trial.measured_at = pilot.measured_at(model.spec, gpu);
  trial.times = measure_kinds(model);
}

std::optional<JobId> Session::Impl::find_trial(const std::string& client_id) const {
  const MutexLock lock(mutex);
  for (std::size_t t = trials.size(); t-- > 0;) {
    if (trials[t]->config.client_id == client_id) return JobId(t);
  }
  return std::nullopt;
}

/// Whether the trial trains on where one of this session has ended.
bool Session::Impl::continues(const SessionTrial& trial, JobId known) const {
  const MutexLock lock(mutex);
  const SessionTrial& before = this->trial(known);
  const bool is_over =
      before.result.state == TrialState::stopped_early && !trial.config.exempt_from_early_stopping;
  return before.ended() && !is_over && trial.config.checkpoint.resume &&
         before.result.steps < trial.config.train.max_steps;
}

/// The disk must hold as many homes as host memory admits at once, and all checkpoints; one disk
/// may have to hold both.
void Session::Impl::require_room_on_disk(SessionTrial& trial) const {
  const TrialPlan& plan = trial.planned.summary;
  std::vector<TrialPlan> sharing{plan};
  Bytes homes = plan.home_bytes, checkpoints = 0;
  for (const auto& other : trials) {
    checkpoints += other->checkpoint_growth;
    if (other->ended()) continue;
    const TrialPlan& others = other->planned.summary;
    homes += others.home_bytes;
    if (others.shared_bytes > 0) sharing.push_back(others);
  }
  homes = std::min(homes + shared_bytes_of(sharing), config.host_memory);
  require_home_room(config.offload_path, homes, plan.home_bytes + plan.shared_bytes);
  const bool beside_homes = !config.offload_path.empty() &&
                            share_disk(config.offload_path, trial.config.checkpoint.folder);
  TrialStore::require_room(trial, checkpoints, beside_homes ? homes : 0);
}

/// Plans a trial whose costs are measured, and makes its job.
void Session::Impl::plan(SessionTrial& trial) const {
  TrialPlan& summary = trial.planned.summary;
  // Devices compute for other trials while hosts exchange the sums of this one.
  if (!all_ended()) trial.team.assume_fast_network();
  choose_lanes(trial);
  summary.home_bytes = planner.home_for_all_plans(trial);
  summary.costs_measured_unix_s = trial.measured_at.unix_s;
  summary.costs_load = trial.measured_at.load;
  trial.plan = trial.planned.plan;
  predict_speed(trial);
  trial.flags = kernel_flags(devices.on_gpus());
  trial.job = std::make_unique<TrainingJob>(trial.model, trial.config, trial.plan);
  trial.result = {.name = trial.config.name,
                  .parameters = trial.model->spec.num_parameters(),
                  .num_shards = summary.num_shards,
                  .virtual_nodes = trial.config.train.virtual_nodes,
                  .lanes = summary.lanes,
                  .order = summary.order,
                  .training_state_bytes = summary.training_state_bytes};
  require_same_state(trial);
  summary.checkpoint_bytes =
      most_checkpoint_bytes(trial.config, trial.model->spec, trial.job->places());
  require_room_on_disk(trial);
  trial.history = TrialHistory(config.max_history, rungs());
  trial.history.set_changes(trial.config.train.changes);
}

void Session::Impl::continue_from(SessionTrial& trial, Generation generation) const {
  trial.history = read_history(generation, config.max_history, rungs());
  trial.history.set_changes(trial.config.train.changes);
  trial.result.steps = trial.first_step;
  copy_losses(trial);
  trial.job->start_from(std::move(generation));
}

/// Users hear of a trial that an earlier session has ended.
JobId Session::Impl::add(std::unique_ptr<SessionTrial> trial) {
  const JobId id(trials.size());
  {
    const MutexLock lock(roster_mutex);
    roster.push_back(trial.get());
  }
  trials.push_back(std::move(trial));
  if (trials.back()->ended()) add_event(id, SessionEvent::Kind::state);
  return id;
}

JobId Session::Impl::submit_evaluation(TrialConfig evaluation, bool predicts) {
  const MutexLock submitting_lock(submitting);
  auto trial = make_entry(std::move(evaluation));
  if (predicts && !trial->model->spec.has_predictions) {
    throw Error(fmt::format(
        "trial {} cannot predict, because its head is divided into pieces; evaluate it, or load "
        "its weights into a model with model.pieces.vocabulary: 1",
        trial->config.name));
  }
  trial->is_evaluation = true;
  trial->first_step = trial->config.train.max_steps;
  measure_costs_of(*trial);
  const MutexLock lock(mutex);
  plan(*trial);
  trial->result.steps = trial->first_step;
  if (predicts) trial->job->keep_predictions();
  const JobId id = add(std::move(trial));
  join_run(id);
  return id;
}

/// Throws ConfigError unless the trial can take part.
std::unique_ptr<SessionTrial> Session::Impl::make_trial(TrialConfig trial_config) const {
  auto trial = make_entry(std::move(trial_config));
  if (trial->config.until != 0) require_until(trial->config.train, trial->config.until);
  require_comparable(*trial);
  limit_lanes(trial->config.train, config.hosts);
  require_trial_of_hosts(trial->config);
  trial->team = team_of(config.hosts);
  return trial;
}

/// Throws DoesNotFit.
void Session::Impl::check_sizes_of(const SessionTrial& trial) const {
  check_sizes(trial.config.name, trial.model->spec, trial.config.train.virtual_nodes,
              devices.budgets());
}

/// With the lock of a submission, which keeps others away until the trials are gone again.
void Session::Impl::check(std::vector<std::unique_ptr<SessionTrial>> checked) {
  const std::size_t num = trials.size();
  try {
    for (auto& trial : checked) {
      plan(*trial);
      if (shell) require_room_at_rungs(trial->planned.summary.home_bytes);
      trials.push_back(std::move(trial));
    }
  } catch (...) {
    trials.resize(num);
    throw;
  }
  trials.resize(num);
}

void Session::check(std::vector<TrialConfig> configs) {
  Impl& impl = *impl_;
  const MutexLock submitting_lock(impl.submitting);
  std::vector<std::unique_ptr<SessionTrial>> checked;
  for (TrialConfig& trial_config : configs) {
    auto trial = impl.make_trial(std::move(trial_config));
    const std::string& client_id = trial->config.client_id;
    const auto known = client_id.empty() ? std::nullopt : impl.find_trial(client_id);
    if (known && !impl.continues(*trial, *known)) {
      impl.store.require_same_contract(impl.trial_of_run(*known), *trial);
      continue;
    }
    if (!known) impl.store.recall(*trial);
    if (trial->ended()) continue;
    {
      const MutexLock lock(impl.mutex);
      impl.check_sizes_of(*trial);
    }
    impl.measure_costs_of(*trial);
    checked.push_back(std::move(trial));
  }
  const MutexLock lock(impl.mutex);
  impl.check(std::move(checked));
}

JobId Session::submit(TrialConfig config) { return impl_->submit(std::move(config), ""); }

/// `origin`: of the state with which it begins, for users.
JobId Session::Impl::submit(TrialConfig trial_config, const std::string& origin) {
  const MutexLock submitting_lock(submitting);
  auto trial = make_trial(std::move(trial_config));
  std::optional<JobId> known;
  if (const std::string& client_id = trial->config.client_id; !client_id.empty()) {
    known = find_trial(client_id);
    trial->is_continued = known && continues(*trial, *known);
    if (known && !trial->is_continued) {
      store.require_same_contract(trial_of_run(*known), *trial);
      return *known;
    }
    trial->config.checkpoint.resume ? store.take_over_changes(*trial) : store.recall(*trial);
  }
  const LeaveOnError leave(hosts.get());
  JobId id;
  {
    const MutexLock lock(mutex);
    id = JobId(trials.size());
    if (!trial->ended()) check_sizes_of(*trial);
  }
  auto newest = open_checkpoints(id, *trial);
  if (trial->ended()) {
    const MutexLock lock(mutex);
    add(std::move(trial));
    join_run(id);
    return id;
  }
  measure_costs_of(*trial);
  const bool resumes = newest.generation.has_value();
  const std::uint64_t generation = resumes ? newest.generation->number() : 0;
  std::vector<Bytes> planned_for;
  {
    const MutexLock lock(mutex);
    plan(*trial);
    if (resumes) continue_from(*trial, std::move(*newest.generation));
    if (trial->is_continued) trial->result.rung_losses = this->trial(*known).result.rung_losses;
    if (shell) require_room_at_rungs(trial->planned.summary.home_bytes);
    planned_for = devices.budgets();
  }
  // Without the lock, for which the thread that writes the journal may be waiting.
  if (trial->config.exempt_from_early_stopping) store.recall_rungs(*trial);
  store.submit(*trial);
  const MutexLock lock(mutex);
  add(std::move(trial));
  add_damage(id, this->trial(id).result.steps, newest.findings);
  if (resumes) {
    SessionEvent event = event_of(id, SessionEvent::Kind::resumed);
    event.generation = generation;
    event.reason = origin;
    events.add(std::move(event));
  }
  join_run(id);
  if (shell && devices.budgets() != planned_for) refit(id);
  return id;
}

std::vector<ContractDifference> Session::changes(TrialConfig trial) {
  return impl_->store.changes(*make_entry(std::move(trial)));
}

void Session::keep_journal(const std::filesystem::path& folder) { keep_journal(RunLock(folder)); }

void Session::keep_journal(RunLock lock) {
  impl_->store.keep_journal(std::move(lock));
  const MutexLock trials_lock(impl_->mutex);
  for (const auto& trial : impl_->trials) {
    if (!trial->is_evaluation) impl_->store.submit(*trial);
  }
}

std::vector<TrialResult> Session::journal() const { return impl_->store.results(); }

const TrialPlan& Session::plan(JobId trial) const {
  const MutexLock lock(impl_->mutex);
  return impl_->trials.at(trial.index())->planned.summary;
}

}  // namespace spillway
