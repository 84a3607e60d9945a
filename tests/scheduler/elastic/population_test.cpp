#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "scheduler/elastic/early_stopping.h"

/// Population-based training: who takes over whose state.
namespace spillway {
namespace {

constexpr std::int64_t kSteps = 100;
constexpr double kUnknownMetric = std::numeric_limits<double>::quiet_NaN();

StoppingRule pbt(double quantile = 0.25, std::uint64_t seed = 1) {
  return {.kind = EarlyTerminateKind::pbt, .rungs = {5, 2, 5}, .quantile = quantile, .seed = seed};
}

/// (job, rung, source, factor) of those that take over.
using Taken = std::vector<std::tuple<std::size_t, std::int64_t, std::size_t, double>>;

Taken taken_of(const std::vector<EarlyStopping::Verdict>& verdicts) {
  Taken taken;
  for (const auto& verdict : verdicts) {
    EXPECT_TRUE(verdict.goes_on);
    if (!verdict.source.valid()) continue;
    taken.emplace_back(verdict.job.index(), verdict.rung, verdict.source.index(), verdict.factor);
  }
  return taken;
}

/// At the first rung.
Taken taken(const StoppingRule& rule, const std::vector<double>& losses) {
  EarlyStopping made(rule);
  for (std::size_t t = 0; t < losses.size(); ++t) made.enter(JobId(t), 0, kSteps);
  for (std::size_t t = 0; t < losses.size(); ++t) made.reach(JobId(t), 5, losses[t]);
  return taken_of(made.decide());
}

std::vector<std::size_t> takers(const Taken& taken) {
  std::vector<std::size_t> takers;
  for (const auto& each : taken) takers.push_back(std::get<0>(each));
  std::ranges::sort(takers);
  return takers;
}

TEST(Population, WorstQuarterTakesFromTheBestQuarter) {
  const std::vector<double> losses{4, 8, 1, 6, 2, 7, 3, 5};
  const Taken found = taken(pbt(), losses);
  EXPECT_EQ(takers(found), (std::vector<std::size_t>{1, 5}));
  for (const auto& [job, rung, source, factor] : found) {
    EXPECT_EQ(rung, 5);
    EXPECT_TRUE(source == 2 || source == 4) << source;
    EXPECT_TRUE(factor == 0.8 || factor == 1.2) << factor;
  }
  StoppingRule most = pbt();
  most.goal = MetricGoal::maximize;
  EXPECT_EQ(takers(taken(most, losses)), (std::vector<std::size_t>{2, 4}));
}

TEST(Population, TakesPartsUpToHalf) {
  for (const auto& [quantile, num, expected] :
       std::vector<std::tuple<double, std::size_t, std::size_t>>{{0.25, 1, 0},
                                                                 {0.25, 2, 1},
                                                                 {0.25, 3, 1},
                                                                 {0.25, 4, 1},
                                                                 {0.25, 5, 2},
                                                                 {0.5, 5, 2},
                                                                 {0.1, 10, 1}}) {
    std::vector<double> losses(num);
    for (std::size_t t = 0; t < num; ++t) losses[t] = static_cast<double>(t);
    EXPECT_EQ(taken(pbt(quantile), losses).size(), expected) << quantile << " of " << num;
  }
}

TEST(Population, PrefersEarlierTrialsAndFiniteLosses) {
  EXPECT_EQ(takers(taken(pbt(), {1, 1, 1, 1})), (std::vector<std::size_t>{3}));
  EXPECT_EQ(std::get<2>(taken(pbt(), {1, 1, 1, 1}).at(0)), 0U);
  EXPECT_EQ(takers(taken(pbt(), {1, kUnknownMetric, 3, 2})), (std::vector<std::size_t>{1}));
  EXPECT_EQ(taken(pbt(0.5), {kUnknownMetric, 2, kUnknownMetric, kUnknownMetric}).size(), 2U);
  for (const auto& each : taken(pbt(0.5), {kUnknownMetric, 2, kUnknownMetric, kUnknownMetric}))
    EXPECT_EQ(std::get<2>(each), 1U);
  EXPECT_TRUE(
      taken(pbt(), {kUnknownMetric, kUnknownMetric, kUnknownMetric, kUnknownMetric}).empty());
}

/// A sweep that steps in random order; now and then all trials are killed and go on from a step
/// before. Losses depend on what a trial has taken over.
class PopulationRun {
 public:
  explicit PopulationRun(std::uint64_t seed, const StoppingRule& rule, std::size_t kill_every)
      : random_(seed), rule_kind_(rule), kill_every_(kill_every), trials_(kTrials) {
    begin();
  }

  Taken play() {
    while (!std::ranges::all_of(trials_, [](const Trial& t) { return t.step == kLast; })) {
      if (kill_every_ > 0 && random_() % kill_every_ == 0) kill();
      step(random_() % kTrials);
    }
    Taken all;
    for (const auto& [key, taken] : taken_) all.push_back(taken);
    return all;
  }

 private:
  static constexpr std::size_t kTrials = 7;
  static constexpr std::int64_t kLast = 22;
  struct Trial {
    std::int64_t step = 0;
    std::int64_t saved_after = 0;  ///< it is durable there, with the state that it took
    bool has_taken = false;        ///< at `step`
    std::map<std::int64_t, double> losses{};
  };

  double loss(std::size_t t, std::int64_t rung) const {
    double sum = static_cast<double>((t * 37 + static_cast<std::size_t>(rung) * 11) % 17);
    for (const auto& [key, taken] : taken_) {
      if (key.second == t && key.first < rung) {
        sum += static_cast<double>(std::get<2>(taken)) * std::get<3>(taken);
      }
    }
    return sum;
  }

  void begin() {
    rule_ = EarlyStopping(rule_kind_);
    for (std::size_t t = 0; t < kTrials; ++t) {
      Trial& trial = trials_[t];
      const std::int64_t passed = trial.step + (trial.has_taken ? 1 : 0);
      rule_.enter(JobId(t), passed, kLast);
      for (const auto& [rung, loss] : trial.losses) {
        if (rung < passed) rule_.reach(JobId(t), rung, loss);
      }
    }
    decide();
  }

  void kill() {
    for (Trial& trial : trials_) {
      const auto lost = static_cast<std::int64_t>(random_() % 7);
      const std::int64_t step = std::max(trial.step - lost, trial.saved_after);
      trial.has_taken = is_taken(trial, step);
      trial.step = step;
    }
    begin();
  }

  bool is_taken(const Trial& trial, std::int64_t step) const {
    const auto t = static_cast<std::size_t>(&trial - trials_.data());
    return step == trial.saved_after && taken_.contains({step, t});
  }

  void step(std::size_t t) {
    Trial& trial = trials_[t];
    if (trial.step == kLast) return;
    if (rule_.hold_step(JobId(t)) == trial.step) {
      if (rule_.waits(JobId(t))) return;
      trial.losses[trial.step] = loss(t, trial.step);
      rule_.reach(JobId(t), trial.step, trial.losses[trial.step]);
      return decide();
    }
    ++trial.step;
    trial.has_taken = false;
  }

  /// A kill may come before all that were taken over are durable; then nobody has gone on.
  void decide() {
    bool is_killed = false;
    for (const auto& taken : taken_of(rule_.decide())) {
      const auto& [job, rung, source, factor] = taken;
      EXPECT_EQ(trials_[job].step, rung);
      EXPECT_EQ(trials_[source].step, rung) << "it rests there";
      const auto [known, is_new] = taken_.try_emplace({rung, job}, taken);
      EXPECT_EQ(known->second, taken) << "a later session decides the same";
      if (kill_every_ > 0 && random_() % 8 == 0) {
        trials_[job].step -= static_cast<std::int64_t>(random_() % 3);
        is_killed = true;
      } else {
        trials_[job].saved_after = rung;
        trials_[job].has_taken = true;
      }
    }
    if (is_killed) kill();
  }

  std::mt19937_64 random_;
  const StoppingRule rule_kind_;
  const std::size_t kill_every_;
  std::vector<Trial> trials_;
  std::map<std::pair<std::int64_t, std::size_t>,
           std::tuple<std::size_t, std::int64_t, std::size_t, double>>
      taken_;
  EarlyStopping rule_{rule_kind_};
};

TEST(Population, DecidesTheSameInAnyOrderAndAfterKills) {
  const Taken expected = PopulationRun(0, pbt(), 0).play();
  EXPECT_EQ(expected.size(), 2U * 4U) << "two of seven at four rungs";
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    ASSERT_EQ(PopulationRun(seed, pbt(), seed % 2 == 0 ? 40 : 0).play(), expected);
  }
  EXPECT_NE(PopulationRun(0, pbt(0.25, 2), 0).play(), expected) << "the control: another seed";
}

TEST(Population, TakesNothingOfATrialThatHasGoneOn) {
  EarlyStopping rule(pbt());
  rule.enter(JobId(0), 7, kSteps);
  rule.reach(JobId(0), 5, 1);
  rule.enter(JobId(1), 0, kSteps);
  rule.reach(JobId(1), 5, 2);
  const auto verdicts = rule.decide();
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_EQ(verdicts[0].job, JobId(1));
  EXPECT_TRUE(verdicts[0].goes_on);
  EXPECT_FALSE(verdicts[0].source.valid());
}

}  // namespace
}  // namespace spillway
