#include <fmt/format.h>

#include <algorithm>

#include "core/base/config_check.h"
#include "trainer/session/session_impl.h"

/// Early stopping: trials wait for each other at rungs, and some of them end there.
namespace spillway {

void require_valid(const EarlyTerminate& early) {
  ConfigCheck check("sweep.early_terminate.");
  const auto require = [&](const char* key, std::int64_t value, std::int64_t least) {
    check.require(value >= least, key, fmt::format("is {}, must be at least {}", value, least));
  };
  require("min_iter", early.min_iter, 1);
  require("eta", early.eta, 2);
  check.finish();
}

std::optional<Rungs> Session::Impl::rungs() const {
  if (!config.early_terminate) return std::nullopt;
  return Rungs{config.early_terminate->min_iter, config.early_terminate->eta};
}

/// The losses at the rungs that a trial has reached.
static RungLosses rung_losses(const SessionTrial& trial) {
  RungLosses losses = trial.history.rung_losses();
  std::erase_if(losses,
                [&](const auto& rung) { return rung.first >= trial.config.train.max_steps; });
  return losses;
}

/// Of all known trials, in the order in which they were first submitted.
SuccessiveHalving Session::Impl::make_halving(const RunLength& length) const {
  SuccessiveHalving rule(length.steps(config.early_terminate->min_iter),
                         config.early_terminate->eta);
  const auto enter = [&](std::size_t t) SPILLWAY_REQUIRES(mutex) {
    const SessionTrial& entered = *trials[t];
    if (entered.ended()) return rule.enter_ended(entered.result.rung_losses);
    rule.enter(JobId(t), entered.first_step, length.steps(entered.config.train.max_steps));
    for (const auto& [rung, loss] : rung_losses(entered)) rule.reach(JobId(t), rung, loss);
  };
  if (!store.has_journal()) {
    for (std::size_t t = 0; t < trials.size(); ++t) enter(t);
    return rule;
  }
  for (const TrialResult& known : store.results()) {
    const auto found = std::ranges::find(trials, known.name,
                                         [](const auto& trial) { return trial->config.client_id; });
    if (found != trials.end()) {
      enter(static_cast<std::size_t>(found - trials.begin()));
    } else {
      rule.enter_ended(known.rung_losses);
    }
  }
  return rule;
}

/// Before anything is submitted to the shell.
void Session::Impl::begin_rungs() {
  for (std::size_t t = 0; config.early_terminate && t < trials.size(); ++t) {
    SessionTrial& trial = *trials[t];
    if (trial.ended()) continue;
    trial.result.rung_losses = rung_losses(trial);
    if (controller->waits(JobId(t)) == JobWait::rung) trial.result.rung_losses.pop_back();
  }
  shell->call([this] {
    const MutexLock lock(mutex);
    RunCommands commands;
    controller->begin(now_s(), commands);
    carry_out(commands);
  });
}

void Session::Impl::carry_out(const PassRung& pass) {
  SessionTrial& passing = trial(pass.job);
  passing.result.rung_losses.emplace_back(pass.verdict.rung, pass.verdict.loss);
  // What it began with is in a checkpoint, and its home may not be there yet.
  if (passing.result.steps > passing.first_step) save_if_due(pass.job);
  shell->hold(pass.job, pass.hold_step);
}

void Session::Impl::carry_out(const StopAtRung& stop) {
  SessionTrial& stopping = trial(stop.job);
  const SuccessiveHalving::Verdict& verdict = stop.verdict;
  stopping.result.rung_losses.emplace_back(verdict.rung, verdict.loss);
  if (stopping.lifecycle.is_live()) stopping.lifecycle.enter(TrialPhase::stopping_early);
  stopping.early_stop_reason =
      fmt::format("at step {} it was number {} of {} with a mean loss of {:f}; the best {} went on",
                  verdict.rung, verdict.rank, verdict.of, verdict.loss, verdict.going_on);
  shell->stop(stop.job);
}

void Session::Impl::require_room_at_rungs() const {
  if (!config.early_terminate) return;
  Bytes homes = 0;
  int num = 0;
  for (const auto& trial : trials) {
    if (trial->ended()) continue;
    homes += trial->planned.summary.home_bytes;
    ++num;
  }
  if (homes <= config.host_memory) return;
  throw DoesNotFit(
      fmt::format("the home of all {} trials, which early stopping lets wait for each other,", num),
      Tier::host, homes, config.host_memory);
}

void Session::check() const {
  const MutexLock lock(impl_->mutex);
  impl_->require_room_at_rungs();
}

}  // namespace spillway
