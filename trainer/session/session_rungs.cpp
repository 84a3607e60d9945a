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
void Session::Impl::begin_halving() {
  if (!config.early_terminate) return;
  halving = make_halving();
  for (std::size_t t = 0; t < trials.size(); ++t) {
    SessionTrial& trial = *trials[t];
    if (trial.ended()) continue;
    trial.at_rung = halving->hold_step(JobId(t)) == trial.first_step;
    trial.result.rung_losses = rung_losses(trial);
    if (trial.at_rung) trial.result.rung_losses.pop_back();
  }
  shell->call([this] {
    const std::lock_guard lock(mutex);
    decide_halving();
  });
}

std::int64_t Session::Impl::hold_step(JobId id) const {
  if (!halving || trials[id.index()]->ended()) return kNoStep;
  return halving->hold_step(id);
}

/// With the step that it has just committed.
void Session::Impl::reach_rung(JobId id) {
  SessionTrial& trial = *trials[id.index()];
  const auto& [rung, loss] = trial.history.rung_losses().back();
  halving->reach(id, rung, loss);
  trial.at_rung = true;
  leave_shares(id);
  decide_halving();
  show_state(id);
}

/// Others may have the devices that one who waits has a share of.
void Session::Impl::leave_shares(JobId id) {
  if (!controller->shares()) return;
  controller->end(id);
  trials[id.index()]->paused = true;
  shell->pause(id);
}

/// Not while stop() ends trials, which others need not wait for then.
void Session::Impl::decide_halving() {
  if (!halving || stop_asked) return;
  for (const SuccessiveHalving::Verdict& verdict : halving->decide()) carry_out(verdict);
}

void Session::Impl::carry_out(const SuccessiveHalving::Verdict& verdict) {
  SessionTrial& trial = *trials[verdict.job.index()];
  trial.at_rung = false;
  trial.result.rung_losses.emplace_back(verdict.rung, verdict.loss);
  if (verdict.goes_on) return go_on(verdict.job);
  trial.stopped_because = "at step " + std::to_string(verdict.rung) + " it was number " +
                          std::to_string(verdict.rank) + " of " + std::to_string(verdict.of) +
                          " with a mean loss of " + std::to_string(verdict.loss) + "; the best " +
                          std::to_string(verdict.going_on) + " went on";
  shell->stop(verdict.job);
}

void Session::Impl::go_on(JobId id) {
  SessionTrial& trial = *trials[id.index()];
  // What it began with is in a checkpoint, and its home may not be there yet.
  if (trial.result.steps > trial.first_step) save_if_due(trial);
  shell->hold(id, halving->hold_step(id));
  if (!trial.started) return;
  if (controller->shares()) {
    controller->arrive(demand(id), now_s());
    newcomers.push_back(id);
    return decide_if_due();
  }
  controller->redone(id);  // its next step counts from here
  show_state(id);
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
