#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "core/base/config_check.h"
#include "spillway/error.h"
#include "trainer/compute/optimizer.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/host_groups.h"
#include "trainer/planning/rules.h"
#include "trainer/session/session_impl.h"

/// The controller decides how many lanes each trial has, and which trials go on at a rung.
namespace spillway {

/// Plans a submitted trial for the lanes that it asks for.
void Session::Impl::choose_lanes(SessionTrial& trial) const {
  TrainConfig& train = trial.config.train;
  const bool is_auto = train.data_parallel == kAutoDataParallel;
  trial.lanes.is_auto = is_auto;
  trial.lanes.rules = make_rules(train);
  if (is_auto && trial.lanes.rules.empty() && !allocator)
    trial.lanes.rules = {make_heuristic(RuleKind::throughput)};
  trial.lanes.max = train.most_devices();
  const bool takes_all = !train.strategy && train.max_data_parallel == 0 &&
                         (is_auto || config.sharing == SharingKind::fill);
  const bool asks_planner = is_auto || takes_all;
  if (asks_planner) {
    trial.planned = planner.plan(trial, 1);
    const int groups = groups_of_host(train, trial.team);
    const int allowed = std::min(groups, trial.planned.usable_devices);
    if (takes_all) trial.lanes.max = std::max(allowed, train.most_devices());
    if (is_auto) train.data_parallel = sizes_up_to(allowed, planner.sizes(trial)).back();
  }
  if (!asks_planner || train.data_parallel > 1)
    trial.planned = planner.plan(trial, train.data_parallel);
  require_devices(trial.planned, train.data_parallel);
  trial.lanes.requested = train.data_parallel;
}

/// With all known trials, in the order in which they were first submitted. `length`: the length of
/// a simulated run, which has shorter rungs too.
RunController Session::Impl::make_controller(const RunLength& length) const {
  std::optional<EarlyStopping> stopping;
  if (const auto& early = config.early_terminate) {
    stopping.emplace(StoppingRule{.kind = early->type,
                                  .rungs = *rungs(length),
                                  .brackets = early->brackets,
                                  .most_at_once = early->max_concurrent_trials,
                                  .quantile = early->quantile,
                                  .seed = early->seed,
                                  .metric = early->metric_name(),
                                  .goal = early->goal});
  }
  RunController made(LaneController(allocator, static_cast<int>(devices.budgets().size())),
                     std::move(stopping));
  const auto enter_trial = [&](std::size_t t) SPILLWAY_REQUIRES(mutex) {
    const SessionTrial& entered = *trials[t];
    const std::int64_t max_steps = length.steps(entered.config.train.max_steps);
    if (entered.ended() && (entered.is_evaluation || entered.is_continued)) return;
    if (entered.ended()) return made.enter_ended(entered.result.rung_losses, max_steps);
    enter(made, JobId(t), length);
  };
  std::vector<bool> is_entered(trials.size());
  for (const TrialResult& known : store.results()) {
    const auto found = std::ranges::find(trials, known.name,
                                         [](const auto& trial) { return trial->config.client_id; });
    if (found == trials.end()) {
      made.enter_ended(known.rung_losses, known.state == TrialState::done ? known.steps : kNoStep);
      continue;
    }
    const auto t = static_cast<std::size_t>(found - trials.begin());
    is_entered[t] = true;
    enter_trial(t);
  }
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!is_entered[t]) enter_trial(t);
  }
  return made;
}

LaneDemand Session::Impl::demand(JobId id) const {
  const SessionTrial& wants = trial(id);
  const TrainConfig& train = wants.config.train;
  return {.job = id,
          .lanes = wants.lanes.requested,
          .most_lanes = planner.lanes_possible(wants),
          .sizes = planner.sizes(wants),
          .priority = train.priority,
          .first_step = wants.result.steps,
          .max_steps = train.max_steps,
          .speed = wants.lanes.speed,
          .fixed = wants.lanes.set_by_user || (!allocator && wants.lanes.rules.empty()),
          .rules = wants.lanes.rules};
}

/// Tells the controller that the devices have changed.
void Session::Impl::note_devices() {
  if (!controller) return;
  controller->set_num_devices(static_cast<int>(devices.budgets().size()));
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (!trials[t]->ended()) controller->limit(JobId(t), planner.lanes_possible(*trials[t]));
  }
  decide_if_due();
}

/// Posts one decision for all events until then.
void Session::Impl::decide_if_due() {
  if (!controller->is_due() || std::exchange(deciding, true)) return;
  shell->call([this] {
    const MutexLock lock(mutex);
    deciding = false;
    RunCommands commands;
    controller->decide(commands);
    carry_out(commands);
    idle.notify_all();
  });
}

void Session::Impl::carry_out(const RunCommands& commands) {
  for (const RunCommand& command : commands) {
    std::visit([this](const auto& c) SPILLWAY_REQUIRES(mutex) { carry_out(c); }, command);
  }
  for (const RunCommand& command : commands) update_phase(job_of(command));
  decide_if_due();
}

void Session::Impl::carry_out(const ResizeJob& resize) {
  SessionTrial& resized = trial(resize.job);
  resized.lanes.requested = resize.lanes;
  resized.lanes.reason = resize.reason;
  resized.lanes.avoided = resize.avoid;
  if (auto plan = planner.best_plan(resized, resize.lanes, resize.avoid)) {
    change_plan(resize.job, std::move(plan));
  } else {
    controller->on_resized(resize.job);  // it goes on as it is
  }
}

void require_valid(const EarlyTerminate& early) {
  ConfigCheck check("sweep.early_terminate.");
  FieldCheck fields(check);
  visit_early_terminate(early, fields);
  check.require(early.brackets != 0, "brackets", "is 0, must be at least 1");
  check.finish();
}

std::optional<Rungs> Session::Impl::rungs(const RunLength& length) const {
  const auto& early = config.early_terminate;
  if (!early) return std::nullopt;
  Rungs rungs{length.steps(early->min_iter), early->eta};
  const bool is_even =
      early->type == EarlyTerminateKind::median || early->type == EarlyTerminateKind::pbt;
  if (is_even) {
    rungs.interval = length.steps(early->interval > 0 ? early->interval : early->min_iter);
  }
  return rungs;
}

/// At the rungs that a trial has reached.
RungLosses Session::Impl::rung_losses(const SessionTrial& trial) const {
  if (!config.early_terminate) return {};
  RungLosses losses = trial.history.rung_losses(config.early_terminate->metric_name());
  std::erase_if(losses,
                [&](const auto& rung) { return rung.first >= trial.config.train.max_steps; });
  return losses;
}

/// Throws ConfigError if the trial comes to a rung where nothing can be compared.
void Session::Impl::require_comparable(const SessionTrial& trial) const {
  const auto& early = config.early_terminate;
  if (!early || !early->evaluates() || trial.config.train.max_steps <= early->min_iter) return;
  const std::string name = early->metric_name();
  const auto& metrics = trial.model->spec.metrics;
  std::string lacking;
  if (!trial.config.data->eval) {
    lacking = "are no samples for evaluation; reserve some, or use final_loss";
  } else if (name != to_string(MetricKind::eval_loss) &&
             std::ranges::count(metrics, name, &MetricSpec::name) == 0) {
    lacking = "is no such metric of the model; add it, or use eval_loss";
  }
  if (lacking.empty()) return;
  throw ConfigError(
      "sweep.metric.name", 0,
      fmt::format("is {}, by which early stopping compares trials, but there {}", name, lacking));
}

/// Throws ConfigError if trials take over states of others and this one cannot.
void Session::Impl::require_same_state(const SessionTrial& trial) const {
  const auto& early = config.early_terminate;
  if (!early || early->type != EarlyTerminateKind::pbt) return;
  for (const auto& other : trials) {
    if (!other->job || other->is_evaluation) continue;
    if (other->job->places().has_tensors_of(trial.job->places())) continue;
    throw ConfigError("sweep.early_terminate.type", 0,
                      fmt::format("is pbt, which needs one model and one optimizer; those of '{}' "
                                  "and '{}' differ",
                                  other->config.name, trial.config.name));
  }
}

/// An exempt trial counts as one that has ended where it went on before.
void Session::Impl::enter(RunController& run, JobId id, const RunLength& length) const {
  const SessionTrial& entered = trial(id);
  const std::int64_t until = entered.until(),
                     max_steps = length.steps(entered.config.train.max_steps);
  const bool is_counted = !entered.is_evaluation && !entered.is_continued;
  const bool is_exempt = entered.config.exempt_from_early_stopping;
  run.enter({.job = id,
             .first_step = entered.first_step,
             .max_steps = max_steps,
             .until = until == kNoStep ? until : length.steps(until),
             .suspended = entered.request == TrialRequest::pause,
             .rung_losses = rung_losses(entered),
             .is_compared = is_counted && !is_exempt,
             .has_taken = entered.history.has_taken()});
  if (is_counted && is_exempt) run.enter_ended(entered.result.rung_losses, max_steps);
}

/// In the result of a trial that has not ended: those where it has gone on.
void Session::Impl::note_rungs(JobId id) {
  SessionTrial& noted = trial(id);
  if (!config.early_terminate || noted.config.exempt_from_early_stopping) return;
  noted.result.rung_losses = rung_losses(noted);
  const std::int64_t undecided = noted.first_step + (noted.history.has_taken() ? 1 : 0);
  std::erase_if(noted.result.rung_losses,
                [&](const auto& rung) { return rung.first >= undecided; });
}

/// Posts a decision on the rungs that trials have reached before this run.
void Session::Impl::decide_rungs() {
  deciding_rungs = true;
  shell->call([this] {
    const MutexLock lock(mutex);
    deciding_rungs = false;
    RunCommands commands;
    controller->begin(now_s(), commands);
    carry_out(commands);
    idle.notify_all();
  });
}

/// Durable before the other trial goes on: a later session cannot repeat it once that has been
/// saved at a later step.
void Session::Impl::carry_out(const TakeState& take) {
  SessionTrial& taking = trial(take.job);
  const SessionTrial& source = trial(take.from);
  if (!taking.lifecycle.is_live() || !source.lifecycle.is_live()) return;  // the user stops it
  TrainConfig train = source.config.train;
  train.changes = source.history.changes();
  const double rate = values_at(train, take.rung).learning_rate * take.factor;
  taking.job->take_state(*source.job);
  taking.history.take();
  change(take.job, {.learning_rate = rate},
         fmt::format("state of '{}', learning_rate {}", source.config.name, rate));
  if (taking.checkpoints) taking.checkpoints->save(taking.history);
}

void Session::Impl::carry_out(const PassRung& pass) {
  SessionTrial& passing = trial(pass.job);
  passing.result.rung_losses.emplace_back(pass.verdict.rung, pass.verdict.loss);
  // The state that it started from is in a checkpoint, and its home may not be reserved yet.
  if (passing.result.steps > passing.first_step) save_if_due(pass.job);
}

void Session::Impl::carry_out(const StopAtRung& stop) {
  SessionTrial& stopping = trial(stop.job);
  stopping.result.rung_losses.emplace_back(stop.verdict.rung, stop.verdict.loss);
  if (stopping.lifecycle.is_live()) stopping.lifecycle.enter(TrialPhase::stopping_early);
  stopping.early_stop_reason = controller->explain(stop);
  shell->finish(stop.job);
}

/// `more`: the home of a trial that comes, all of it.
void Session::Impl::require_room_at_rungs(Bytes more) const {
  const auto& early = config.early_terminate;
  if (!early) return;
  std::vector<Bytes> homes;
  std::vector<TrialPlan> sharing;
  if (more > 0) homes.push_back(more);
  for (const auto& trial : trials) {
    if (trial->ended()) continue;
    const TrialPlan& plan = trial->planned.summary;
    homes.push_back(plan.home_bytes);
    if (plan.shared_bytes > 0) sharing.push_back(plan);
  }
  const auto all = homes.size();
  const bool is_limited =
      early->type == EarlyTerminateKind::asha || early->type == EarlyTerminateKind::median;
  if (is_limited) {
    std::ranges::sort(homes, std::greater());
    homes.resize(std::min(all, static_cast<std::size_t>(early->max_concurrent_trials)));
  }
  const Bytes needed = std::accumulate(homes.begin(), homes.end(), shared_bytes_of(sharing));
  if (needed <= config.host_memory) return;
  const bool is_all = homes.size() == all;
  const char* remedy = is_all ? "" : "or lower sweep.early_terminate.max_concurrent_trials";
  throw DoesNotFit(
      fmt::format(
          "the training state of {} {} trials, which wait for each other at a rung of early "
          "stopping,",
          is_all ? "all" : "the largest", homes.size()),
      Tier::host, needed, config.host_memory, remedy);
}

void Session::check() const {
  const MutexLock lock(impl_->mutex);
  impl_->require_room_at_rungs();
}

}  // namespace spillway
