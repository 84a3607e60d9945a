#include "scheduler/elastic/successive_halving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

namespace spillway {
namespace {

using Verdict = SuccessiveHalving::Verdict;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Trials 0, 1, ... of `max_steps` steps that start at step 0.
SuccessiveHalving with_trials(SuccessiveHalving rule, std::size_t num,
                              std::int64_t max_steps = 100) {
  for (std::size_t t = 0; t < num; ++t) rule.enter(JobId(t), 0, max_steps);
  return rule;
}

/// Reports a trial with these losses at the rungs that it has reached.
RungLosses rung_losses(const std::vector<double>& losses, const Rungs& rungs) {
  RungMeans means;
  for (const double loss : losses) means.add(loss, rungs);
  return means.means;
}

/// By rank.
std::vector<std::size_t> jobs_of(const std::vector<Verdict>& verdicts, bool that_go_on) {
  std::vector<std::size_t> jobs;
  for (const Verdict& verdict : verdicts) {
    if (verdict.goes_on == that_go_on) jobs.push_back(verdict.job.index());
  }
  return jobs;
}

std::vector<Verdict> all_reach(SuccessiveHalving& rule, const std::vector<double>& losses) {
  for (std::size_t t = 0; t < losses.size(); ++t) rule.reach(JobId(t), 2, losses[t]);
  return rule.decide();
}

TEST(SuccessiveHalving, SpacesRungsByEta) {
  const Rungs rungs{20, 3};
  EXPECT_EQ(rungs.from(0), 20);
  EXPECT_EQ(rungs.from(20), 20);
  EXPECT_EQ(rungs.from(21), 60);
  EXPECT_EQ(rungs.from(61), 180);
  EXPECT_EQ(rungs.from(kNoStep), kNoStep);
  EXPECT_EQ((Rungs{kNoStep - 1, 2}.from(kNoStep)), kNoStep);
}

TEST(SuccessiveHalving, ComparesMeanLossesSinceTheLastRung) {
  EXPECT_EQ(rung_losses({9, 7, 1, 2, 3, 6, 100}, {2, 3}), (RungLosses{{2, 8}, {6, 3}}));
}

TEST(SuccessiveHalving, WaitsForAllThenKeepsTheBest) {
  auto rule = with_trials({2, 3}, 7);
  for (std::size_t t = 0; t < 6; ++t) rule.reach(JobId(t), 2, 10.0 - static_cast<double>(t));
  EXPECT_TRUE(rule.decide().empty());
  EXPECT_EQ(rule.hold_step(JobId(5)), 2);
  rule.reach(JobId(6), 2, 5.5);
  const auto verdicts = rule.decide();
  EXPECT_EQ(jobs_of(verdicts, true), (std::vector<std::size_t>{5, 6}));
  EXPECT_EQ(jobs_of(verdicts, false), (std::vector<std::size_t>{4, 3, 2, 1, 0}));
  EXPECT_EQ(rule.hold_step(JobId(5)), 6);
  EXPECT_EQ(rule.hold_step(JobId(0)), kNoStep);
  const Verdict& third = verdicts[2];
  EXPECT_EQ(third.rung, 2);
  EXPECT_EQ(third.loss, 6);
  EXPECT_EQ(third.rank, 3);
  EXPECT_EQ(third.of, 7);
  EXPECT_EQ(third.going_on, 2);
  EXPECT_TRUE(rule.decide().empty());
}

TEST(SuccessiveHalving, RanksTiesByEntryAndNonFiniteLast) {
  auto rule = with_trials({2, 2}, 6);
  const auto verdicts = all_reach(rule, {kNan, 1, -INFINITY, 1, INFINITY, 1});
  EXPECT_EQ(jobs_of(verdicts, true), (std::vector<std::size_t>{1, 3, 5}));
  EXPECT_EQ(jobs_of(verdicts, false), (std::vector<std::size_t>{0, 2, 4}));
}

TEST(SuccessiveHalving, ContinuesAtLeastOne) {
  for (std::size_t num = 1; num < 6; ++num) {
    auto rule = with_trials({2, 3}, num);
    const auto verdicts = all_reach(rule, std::vector<double>(num, kNan));
    EXPECT_EQ(jobs_of(verdicts, true), std::vector<std::size_t>{0}) << num;
  }
}

TEST(SuccessiveHalving, IgnoresTrialsThatEndBelowARung) {
  SuccessiveHalving rule(2, 2);
  rule.enter(JobId(0), 0, 2);  // ends at the rung
  rule.enter(JobId(1), 0, 3);
  rule.enter(JobId(2), 0, 9);
  EXPECT_EQ(rule.hold_step(JobId(0)), kNoStep);
  rule.reach(JobId(1), 2, 5);
  rule.reach(JobId(2), 2, 4);
  EXPECT_EQ(jobs_of(rule.decide(), true), std::vector<std::size_t>{2});
}

TEST(SuccessiveHalving, IgnoresTrialsThatLeft) {
  auto rule = with_trials({2, 2}, 4);
  rule.reach(JobId(0), 2, 1);
  rule.reach(JobId(1), 2, 3);
  rule.reach(JobId(2), 2, 2);
  rule.leave(JobId(0));  // while it waits
  EXPECT_TRUE(rule.decide().empty());
  rule.leave(JobId(3));  // before it arrived
  const auto verdicts = rule.decide();
  EXPECT_EQ(jobs_of(verdicts, true), std::vector<std::size_t>{2});
  EXPECT_EQ(jobs_of(verdicts, false), std::vector<std::size_t>{1});
  EXPECT_EQ(verdicts[0].of, 2);
}

TEST(SuccessiveHalving, KeepsEarlierRanksOfTrialsThatLeave) {
  auto rule = with_trials({2, 2}, 4);
  EXPECT_EQ(jobs_of(all_reach(rule, {1, 2, 3, 4}), true), (std::vector<std::size_t>{0, 1}));
  rule.leave(JobId(0));
  // As a later session reports it: the last two are behind again.
  SuccessiveHalving later(2, 2);
  later.enter_ended({{2, 1}});
  for (std::size_t t = 1; t < 4; ++t) later.enter(JobId(t), 0, 100);
  for (std::size_t t = 1; t < 4; ++t) later.reach(JobId(t), 2, 1.0 + static_cast<double>(t));
  EXPECT_EQ(jobs_of(later.decide(), true), std::vector<std::size_t>{1});
}

TEST(SuccessiveHalving, CountsTrialsPastARungAsContinued) {
  SuccessiveHalving rule(2, 2);
  rule.enter(JobId(0), 5, 100);
  rule.reach(JobId(0), 2, 9);  // another trial has failed since and reports again
  rule.enter(JobId(1), 2, 100);
  rule.enter(JobId(2), 0, 100);
  rule.reach(JobId(1), 2, 1);
  EXPECT_EQ(rule.hold_step(JobId(0)), 8);
  EXPECT_EQ(rule.hold_step(JobId(1)), 2);
  rule.reach(JobId(2), 2, 2);
  EXPECT_EQ(jobs_of(rule.decide(), false), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(rule.hold_step(JobId(0)), 8);
}

/// A sweep with made-up losses, run in an order of its own.
struct Sweep {
  struct Trial {
    std::int64_t max_steps = 0, fails_at = kNoStep;
    std::vector<double> losses;  // by step
  };
  std::int64_t min_iter = 1;
  int eta = 2;
  std::vector<Trial> trials;

  explicit Sweep(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    min_iter = 1 + static_cast<std::int64_t>(random() % 3);
    eta = 2 + static_cast<int>(random() % 3);
    trials.resize(1 + random() % 12);
    for (Trial& trial : trials) {
      trial.max_steps = 5 + static_cast<std::int64_t>(random() % 30);
      if (random() % 5 == 0) trial.fails_at = static_cast<std::int64_t>(random() % 20);
      while (std::ssize(trial.losses) < trial.max_steps) {
        trial.losses.push_back(static_cast<double>(random() % 4));  // with ties
      }
    }
  }
};

/// The step at which each trial ends: its last one, a failure, or a rung.
using Ends = std::vector<std::int64_t>;

/// Steps trials in random order. Sometimes all are killed and continue from an earlier step.
class SweepRun {
 public:
  SweepRun(const Sweep& sweep, std::uint64_t seed, bool is_killed)
      : sweep_(sweep), random_(seed), is_killed_(is_killed), trials_(sweep.trials.size()) {
    begin();
  }

  Ends ends() {
    for (int events = 0; !all_ended(); ++events) {
      if (events > 100'000) throw std::logic_error("trials wait for each other for ever");
      if (is_killed_ && random_() % 40 == 0) kill();
      step(random_() % trials_.size());
    }
    Ends ends;
    for (const Trial& trial : trials_) ends.push_back(trial.step);
    return ends;
  }

 private:
  struct Trial {
    std::int64_t step = 0;
    bool ended = false;
    RungLosses decided;
  };
  bool all_ended() const { return std::ranges::all_of(trials_, &Trial::ended); }
  RungLosses losses(std::size_t t) const {
    const auto& all = sweep_.trials[t].losses;
    return rung_losses({all.begin(), all.begin() + trials_[t].step}, {sweep_.min_iter, sweep_.eta});
  }

  /// Starts a session: reports the results of ended trials and the histories of the others.
  void begin() {
    rule_ = SuccessiveHalving(sweep_.min_iter, sweep_.eta);
    for (std::size_t t = 0; t < trials_.size(); ++t) {
      Trial& trial = trials_[t];
      if (trial.ended) {
        rule_.enter_ended(trial.decided);
        continue;
      }
      rule_.enter(JobId(t), trial.step, sweep_.trials[t].max_steps);
      std::erase_if(trial.decided, [&](const auto& rung) { return rung.first >= trial.step; });
      for (const auto& [rung, loss] : losses(t)) {
        if (rung < sweep_.trials[t].max_steps) rule_.reach(JobId(t), rung, loss);
      }
    }
    decide();
  }

  void kill() {
    for (Trial& trial : trials_) {
      if (!trial.ended) trial.step -= static_cast<std::int64_t>(random_() % 5);
      trial.step = std::max<std::int64_t>(trial.step, 0);
    }
    begin();
  }

  void step(std::size_t t) {
    Trial& trial = trials_[t];
    if (trial.ended || trial.step == rule_.hold_step(JobId(t))) return;
    if (trial.step == sweep_.trials[t].fails_at) return end(t);
    ++trial.step;
    if (trial.step == sweep_.trials[t].max_steps) return end(t);
    if (trial.step != rule_.hold_step(JobId(t))) return;
    rule_.reach(JobId(t), trial.step, losses(t).back().second);
    decide();
  }

  void end(std::size_t t) {
    trials_[t].ended = true;
    rule_.leave(JobId(t));
    decide();
  }

  void decide() {
    for (const Verdict& verdict : rule_.decide()) {
      Trial& trial = trials_[verdict.job.index()];
      EXPECT_EQ(trial.step, verdict.rung);
      EXPECT_EQ(verdict.going_on, std::max(1, verdict.of / sweep_.eta));
      trial.decided.emplace_back(verdict.rung, verdict.loss);
      trial.ended = !verdict.goes_on;
    }
  }

  const Sweep& sweep_;
  std::mt19937_64 random_;
  bool is_killed_;
  std::vector<Trial> trials_;
  SuccessiveHalving rule_{1, 2};
};

TEST(SuccessiveHalving, DecidesIndependentlyOfOrderAndKills) {
  int num_stopped = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Sweep sweep(seed);
    const Ends ends = SweepRun(sweep, 1, false).ends();
    for (std::size_t t = 0; t < ends.size(); ++t) {
      const auto& trial = sweep.trials[t];
      num_stopped += ends[t] < std::min(trial.max_steps, trial.fails_at) ? 1 : 0;
    }
    for (std::uint64_t order = 2; order < 6; ++order) {
      EXPECT_EQ(SweepRun(sweep, order, false).ends(), ends) << "seed " << seed;
      EXPECT_EQ(SweepRun(sweep, order, true).ends(), ends) << "killed, seed " << seed;
    }
  }
  EXPECT_GT(num_stopped, 300);
}

/// Negative control: a trial continues at once if it is among the best floor(n / eta) that have
/// arrived so far, at least one (Li et al., A system for massively parallel hyperparameter tuning,
/// 2020).
std::vector<std::size_t> go_on_asynchronously(const std::vector<double>& losses,
                                              const std::vector<std::size_t>& arrivals, int eta) {
  std::vector<double> come;
  std::vector<std::size_t> going_on;
  for (std::size_t job : arrivals) {
    come.push_back(losses[job]);
    const auto better = std::ranges::count_if(come, [&](double l) { return l < losses[job]; });
    const auto places = std::max<std::ptrdiff_t>(1, std::ssize(come) / eta);
    if (better < places) going_on.push_back(job);
  }
  std::ranges::sort(going_on);
  return going_on;
}

TEST(SuccessiveHalving, DependsOnOrderIfDecidedAtArrival) {
  const std::vector<double> losses{5, 3, 1, 4, 2, 6};
  const std::vector<std::size_t> one{0, 1, 2, 3, 4, 5}, other{2, 4, 1, 3, 0, 5};
  EXPECT_NE(go_on_asynchronously(losses, one, 3), go_on_asynchronously(losses, other, 3));
  const auto synchronous = [&](const std::vector<std::size_t>& arrivals) {
    auto rule = with_trials({2, 3}, losses.size());
    for (std::size_t job : arrivals) rule.reach(JobId(job), 2, losses[job]);
    return jobs_of(rule.decide(), true);
  };
  EXPECT_EQ(synchronous(one), synchronous(other));
  EXPECT_EQ(synchronous(one), (std::vector<std::size_t>{2, 4}));
}

}  // namespace
}  // namespace spillway
