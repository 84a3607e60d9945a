#include <algorithm>
#include <string>

#include "core/base/config_check.h"
#include "trainer/session/session_impl.h"

/// Early stopping: trials wait for each other at rungs, and some of them end there.
namespace spillway {

void require_valid(const EarlyTerminate& early) {
  ConfigCheck check("sweep.early_terminate.");
  const auto require = [&](const char* key, std::int64_t value, std::int64_t least) {
    check.require(value >= least, key,
                  "is " + std::to_string(value) + ", must be at least " + std::to_string(least));
  };
  require("min_iter", early.min_iter, 1);
  require("eta", early.eta, 2);
  check.finish();
}

std::optional<Rungs> Session::Impl::rungs() const {
  if (!config.early_terminate) return std::nullopt;
  return Rungs{config.early_terminate->min_iter, config.early_terminate->eta};
}

/// A trial that has not ended, with what it has said until now.
void Session::Impl::enter_halving(SuccessiveHalving& rule, JobId id,
                                  const RunLength& length) const {
  const SessionTrial& trial = *trials[id.index()];
  rule.enter(id, trial.first_step, length.steps(trial.config.train.max_steps));
  for (const auto& [rung, loss] : rung_losses(trial)) rule.reach(id, rung, loss);
}

/// At the rungs that a trial has come to.
RungLosses Session::Impl::rung_losses(const SessionTrial& trial) {
  RungLosses losses = trial.history.rung_losses();
  std::erase_if(losses,
                [&](const auto& rung) { return rung.first >= trial.config.train.max_steps; });
  return losses;
}

/// Of all trials that are known, in the order in which they were submitted first.
SuccessiveHalving Session::Impl::make_halving(const RunLength& length) const {
  SuccessiveHalving rule(length.steps(config.early_terminate->min_iter),
                         config.early_terminate->eta);
  const auto enter = [&](std::size_t t) {
    if (!trials[t]->ended()) return enter_halving(rule, JobId(t), length);
    rule.enter_ended(trials[t]->result.rung_losses);
  };
  if (!journal) {
    for (std::size_t t = 0; t < trials.size(); ++t) enter(t);
    return rule;
  }
  for (const TrialResult& known : journal_results()) {
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
    const std::lock_guard lock(mutex);
    RunCommands commands;
    controller->begin(now_s(), commands);
    carry_out(commands);
  });
}

void Session::Impl::carry_out(const PassRung& pass) {
  SessionTrial& trial = *trials[pass.job.index()];
  trial.result.rung_losses.emplace_back(pass.verdict.rung, pass.verdict.loss);
  // What it began with is in a checkpoint, and its home may not be there yet.
  if (trial.result.steps > trial.first_step) save_if_due(pass.job);
  shell->hold(pass.job, pass.hold_step);
}

void Session::Impl::carry_out(const StopAtRung& stop) {
  SessionTrial& trial = *trials[stop.job.index()];
  const SuccessiveHalving::Verdict& verdict = stop.verdict;
  trial.result.rung_losses.emplace_back(verdict.rung, verdict.loss);
  trial.stopped_because = "at step " + std::to_string(verdict.rung) + " it was number " +
                          std::to_string(verdict.rank) + " of " + std::to_string(verdict.of) +
                          " with a mean loss of " + std::to_string(verdict.loss) + "; the best " +
                          std::to_string(verdict.going_on) + " went on";
  shell->stop(stop.job);
}

void Session::check() const {
  const Impl& impl = *impl_;
  if (!impl.config.early_terminate) return;
  Bytes homes = 0;
  int num = 0;
  for (const auto& trial : impl.trials) {
    if (trial->ended()) continue;
    homes += trial->planned.summary.home_bytes;
    ++num;
  }
  if (homes <= impl.config.host_memory) return;
  throw DoesNotFit("the home of all " + std::to_string(num) +
                       " trials, which early stopping lets wait for each other,",
                   Tier::host, homes, impl.config.host_memory);
}

}  // namespace spillway
