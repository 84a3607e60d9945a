#include "scheduler/elastic/early_stopping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace spillway {
namespace {

using Verdict = EarlyStopping::Verdict;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

EarlyStopping halving(std::int64_t min_iter, int eta) {
  return EarlyStopping({.rungs = {min_iter, eta}});
}

/// Trials 0, 1, ... of so many steps that begin at 0.
EarlyStopping with_trials(EarlyStopping rule, std::size_t num, std::int64_t max_steps = 100) {
  for (std::size_t t = 0; t < num; ++t) rule.enter(JobId(t), 0, max_steps);
  return rule;
}

/// At the rungs that a trial with these losses has come to.
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

std::vector<Verdict> all_reach(EarlyStopping& rule, const std::vector<double>& losses) {
  for (std::size_t t = 0; t < losses.size(); ++t) rule.reach(JobId(t), 2, losses[t]);
  return rule.decide();
}

TEST(EarlyStopping, PlacesRungsEtaTimesAsFarApart) {
  const Rungs rungs{20, 3};
  EXPECT_EQ(rungs.from(0), 20);
  EXPECT_EQ(rungs.from(20), 20);
  EXPECT_EQ(rungs.from(21), 60);
  EXPECT_EQ(rungs.from(61), 180);
  EXPECT_EQ(rungs.from(kNoStep), kNoStep);
  EXPECT_EQ((Rungs{kNoStep - 1, 2}.from(kNoStep)), kNoStep);
}

TEST(EarlyStopping, PlacesRungsAnIntervalApart) {
  const Rungs rungs{.min_iter = 20, .interval = 5};
  EXPECT_EQ(rungs.from(0), 20);
  EXPECT_EQ(rungs.from(21), 25);
  EXPECT_EQ(rungs.from(25), 25);
  EXPECT_EQ(rungs.after(25), 30);
  EXPECT_EQ(rungs.from(kNoStep), kNoStep);
}

TEST(EarlyStopping, ComparesTheMeanLossSinceTheRungBefore) {
  EXPECT_EQ(rung_losses({9, 7, 1, 2, 3, 6, 100}, {2, 3}), (RungLosses{{2, 8}, {6, 3}}));
}

TEST(EarlyStopping, WaitsForAllAndKeepsTheBest) {
  auto rule = with_trials(halving(2, 3), 7);
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

TEST(EarlyStopping, PrefersTheFirstOfATieAndRanksWhatIsNotFiniteLast) {
  auto rule = with_trials(halving(2, 2), 6);
  const auto verdicts = all_reach(rule, {kNan, 1, -INFINITY, 1, INFINITY, 1});
  EXPECT_EQ(jobs_of(verdicts, true), (std::vector<std::size_t>{1, 3, 5}));
  EXPECT_EQ(jobs_of(verdicts, false), (std::vector<std::size_t>{0, 2, 4}));
}

TEST(EarlyStopping, MaximizesIfThatIsTheGoal) {
  EarlyStopping rule({.rungs = {2, 2}, .goal = MetricGoal::maximize});
  rule = with_trials(rule, 6);
  const auto verdicts = all_reach(rule, {kNan, 1, -INFINITY, 2, INFINITY, 2});
  EXPECT_EQ(jobs_of(verdicts, true), (std::vector<std::size_t>{3, 5, 1}));
  EXPECT_EQ(jobs_of(verdicts, false), (std::vector<std::size_t>{0, 2, 4}));
}

TEST(EarlyStopping, SaysWhyATrialIsStopped) {
  for (const MetricKind metric : {MetricKind::eval_loss, MetricKind::final_loss}) {
    EarlyStopping rule({.rungs = {2, 2}, .metric = to_string(metric)});
    rule = with_trials(rule, 2);
    EXPECT_EQ(rule.evaluates(), metric == MetricKind::eval_loss);
    EXPECT_EQ(
        rule.explain(all_reach(rule, {3, 4}).at(1)),
        metric == MetricKind::eval_loss
            ? "at step 2 it was number 2 of 2 by evaluation loss (4.000000); the best 1 continued"
            : "at step 2 it was number 2 of 2 by mean loss (4.000000); the best 1 continued");
  }
}

TEST(EarlyStopping, LetsOneGoOnAlways) {
  for (std::size_t num = 1; num < 6; ++num) {
    auto rule = with_trials(halving(2, 3), num);
    const auto verdicts = all_reach(rule, std::vector<double>(num, kNan));
    EXPECT_EQ(jobs_of(verdicts, true), std::vector<std::size_t>{0}) << num;
  }
}

TEST(EarlyStopping, IgnoresTrialsThatEndBelowARung) {
  EarlyStopping rule = halving(2, 2);
  rule.enter(JobId(0), 0, 2);  // ends where the rung is
  rule.enter(JobId(1), 0, 3);
  rule.enter(JobId(2), 0, 9);
  EXPECT_EQ(rule.hold_step(JobId(0)), kNoStep);
  rule.reach(JobId(1), 2, 5);
  rule.reach(JobId(2), 2, 4);
  EXPECT_EQ(jobs_of(rule.decide(), true), std::vector<std::size_t>{2});
}

TEST(EarlyStopping, NeitherWaitsForNorCountsTrialsThatHaveLeft) {
  auto rule = with_trials(halving(2, 2), 4);
  rule.reach(JobId(0), 2, 1);
  rule.reach(JobId(1), 2, 3);
  rule.reach(JobId(2), 2, 2);
  rule.leave(JobId(0));  // while it waits
  EXPECT_TRUE(rule.decide().empty());
  rule.leave(JobId(3));  // before it came
  const auto verdicts = rule.decide();
  EXPECT_EQ(jobs_of(verdicts, true), std::vector<std::size_t>{2});
  EXPECT_EQ(jobs_of(verdicts, false), std::vector<std::size_t>{1});
  EXPECT_EQ(verdicts[0].of, 2);
}

TEST(EarlyStopping, KeepsThePlaceOfATrialThatLeavesLater) {
  auto rule = with_trials(halving(2, 2), 4);
  EXPECT_EQ(jobs_of(all_reach(rule, {1, 2, 3, 4}), true), (std::vector<std::size_t>{0, 1}));
  rule.leave(JobId(0));
  // As a later session hears it: the last two are behind again.
  EarlyStopping later = halving(2, 2);
  later.enter_ended({{2, 1}}, 100);
  for (std::size_t t = 1; t < 4; ++t) later.enter(JobId(t), 0, 100);
  for (std::size_t t = 1; t < 4; ++t) later.reach(JobId(t), 2, 1.0 + static_cast<double>(t));
  EXPECT_EQ(jobs_of(later.decide(), true), std::vector<std::size_t>{1});
}

TEST(EarlyStopping, KnowsThatATrialPastARungWentOnThere) {
  EarlyStopping rule = halving(2, 2);
  rule.enter(JobId(0), 5, 100);
  rule.reach(JobId(0), 2, 9);  // another trial failed since, and is here again
  rule.enter(JobId(1), 2, 100);
  rule.enter(JobId(2), 0, 100);
  rule.reach(JobId(1), 2, 1);
  EXPECT_EQ(rule.hold_step(JobId(0)), 8);
  EXPECT_EQ(rule.hold_step(JobId(1)), 2);
  rule.reach(JobId(2), 2, 2);
  EXPECT_EQ(jobs_of(rule.decide(), false), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(rule.hold_step(JobId(0)), 8);
}

}  // namespace
}  // namespace spillway
