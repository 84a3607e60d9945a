#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "scheduler/elastic/early_stopping.h"

/// The rules over whole sweeps: against traces that are checked by hand, and against a reference
/// that looks at all losses at once.
namespace spillway {
namespace {

using Verdict = EarlyStopping::Verdict;
using Kind = EarlyTerminateKind;
using JobNumbers = std::vector<std::size_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A sweep whose losses are made up.
struct Sweep {
  struct Trial {
    std::int64_t max_steps = 0, fails_at = kNoStep;
    std::vector<double> losses;  // the metric after each step
    /// The last step that it could commit.
    std::int64_t most_steps() const { return std::min(max_steps, fails_at); }
    bool comes_to(std::int64_t rung) const { return rung < max_steps && rung <= fails_at; }
  };
  StoppingRule rule;
  std::vector<Trial> trials;

  Sweep(Kind kind, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    rule.kind = kind;
    rule.rungs = {1 + static_cast<std::int64_t>(random() % 3), 2 + static_cast<int>(random() % 3)};
    if (kind == Kind::hyperband) rule.brackets = 1 + static_cast<int>(random() % 3);
    if (kind != Kind::hyperband) rule.most_at_once = 1 + static_cast<int>(random() % 9);
    if (kind == Kind::median) rule.rungs.interval = 1 + static_cast<std::int64_t>(random() % 4);
    if (random() % 2 == 0) rule.goal = MetricGoal::maximize;
    trials.resize(1 + random() % 20);
    for (Trial& trial : trials) {
      trial.max_steps = 5 + static_cast<std::int64_t>(random() % 30);
      if (random() % 5 == 0) trial.fails_at = static_cast<std::int64_t>(random() % 20);
      while (std::ssize(trial.losses) < trial.max_steps) {
        const auto draw = random() % 40;  // with ties
        trial.losses.push_back(draw == 0   ? std::nan("")
                               : draw == 1 ? -kInfinity
                                           : static_cast<double>(draw / 4));
      }
    }
  }
  double loss(std::size_t t, std::int64_t step) const {
    return trials[t].losses[static_cast<std::size_t>(step) - 1];
  }
};

/// Where each trial ends: at its last step, where it fails, or at a rung.
using Ends = std::vector<std::int64_t>;

/// Steps trials in random order; now and then all are killed and go on from a step before.
class SweepRun {
 public:
  SweepRun(const Sweep& sweep, std::uint64_t seed, bool is_killed)
      : sweep_(sweep), random_(seed), is_killed_(is_killed), trials_(sweep.trials.size()) {
    begin();
  }

  Ends ends() {
    for (int events = 0; !std::ranges::all_of(trials_, &Trial::ended); ++events) {
      if (events > 100'000) throw std::logic_error("trials wait for each other for ever");
      if (is_killed_ && random_() % 300 == 0) kill();
      step(random_() % trials_.size());
      count_live();
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

  /// As a session begins: with the results of those that ended, and the histories of the others. It
  /// evaluates again where one was killed at its rung.
  void begin() {
    rule_ = EarlyStopping(sweep_.rule);
    for (std::size_t t = 0; t < trials_.size(); ++t) {
      Trial& trial = trials_[t];
      const std::int64_t max_steps = sweep_.trials[t].max_steps;
      if (trial.ended) {
        rule_.enter_ended(trial.decided, max_steps);
        continue;
      }
      rule_.enter(JobId(t), trial.step, max_steps);
      std::erase_if(trial.decided, [&](const auto& rung) { return rung.first >= trial.step; });
      for (std::int64_t step = 1; step < std::min(trial.step, max_steps); ++step) {
        if (sweep_.rule.rungs.from(step) == step) rule_.reach(JobId(t), step, sweep_.loss(t, step));
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
    if (trial.ended || rule_.waits(JobId(t))) return;
    if (rule_.compares(JobId(t), trial.step)) return reach(t);
    if (trial.step == sweep_.trials[t].fails_at) return end(t);
    ++trial.step;
    if (trial.step == sweep_.trials[t].max_steps) return end(t);
    if (trial.step == rule_.hold_step(JobId(t))) reach(t);
  }

  void reach(std::size_t t) {
    rule_.reach(JobId(t), trials_[t].step, sweep_.loss(t, trials_[t].step));
    decide();
  }

  void end(std::size_t t) {
    trials_[t].ended = true;
    rule_.leave(JobId(t));
    decide();
  }

  void decide() {
    for (const Verdict& verdict : rule_.decide()) {
      if (verdict.rung == 0) continue;
      Trial& trial = trials_[verdict.job.index()];
      EXPECT_EQ(trial.step, verdict.rung);
      trial.decided.emplace_back(verdict.rung, verdict.loss);
      trial.ended = !verdict.goes_on;
    }
  }

  /// Only those that may train at once hold memory, unless one was there before a kill.
  void count_live() {
    if (sweep_.rule.kind == Kind::hyperband || is_killed_) return;
    const auto live = std::ranges::count_if(
        trials_, [](const Trial& trial) { return !trial.ended && trial.step > 0; });
    EXPECT_LE(live, sweep_.rule.most_at_once);
  }

  const Sweep& sweep_;
  std::mt19937_64 random_;
  bool is_killed_;
  std::vector<Trial> trials_;
  EarlyStopping rule_{StoppingRule{}};
};

/// The reference: all losses are known, and a clock counts steps.
class Reference {
 public:
  explicit Reference(const Sweep& sweep) : sweep_(sweep), trials_(sweep.trials.size()) { deal(); }

  Ends ends() {
    for (std::int64_t time = 0; time < 2'000; ++time) tick(time);
    Ends ends;
    for (const Trial& trial : trials_) ends.push_back(trial.end);
    return ends;
  }

 private:
  struct Trial {
    std::set<std::int64_t> rungs;
    int bracket = 0;
    std::int64_t begin = -1, end = -1;  // -1: not yet
  };

  /// Brackets in Li's proportions: the k-th of the trials so far is in the bracket whose number is
  /// furthest behind.
  void deal() {
    const StoppingRule& rule = sweep_.rule;
    std::vector<std::size_t> num(static_cast<std::size_t>(rule.brackets));
    std::vector<double> share;
    double all = 0;
    for (int b = 0; b < rule.brackets; ++b) {
      const int halvings = rule.brackets - 1 - b;
      share.push_back(std::ceil(static_cast<double>(rule.brackets) / (halvings + 1) *
                                std::pow(rule.rungs.eta, halvings)));
      all += share.back();
    }
    for (std::size_t t = 0; t < trials_.size(); ++t) {
      const auto behind = [&](std::size_t b) {
        return share[b] * static_cast<double>(t + 1) - all * static_cast<double>(num[b]);
      };
      std::size_t most = 0;
      for (std::size_t b = 0; b < num.size(); ++b) most = behind(b) > behind(most) ? b : most;
      ++num[most];
      trials_[t].bracket = static_cast<int>(most);
      std::int64_t rung = rule.rungs.min_iter;
      for (std::size_t b = 0; b < most; ++b) rung *= rule.rungs.eta;
      while (rung < sweep_.trials[t].max_steps) {
        trials_[t].rungs.insert(rung);
        rung = rule.rungs.interval > 0 ? rung + rule.rungs.interval : rung * rule.rungs.eta;
      }
    }
  }

  double score(std::size_t t, std::int64_t rung) const {
    const double loss = sweep_.loss(t, rung);
    if (!std::isfinite(loss)) return kInfinity;
    return sweep_.rule.goal == MetricGoal::maximize ? -loss : loss;
  }

  /// Everybody who is at a rung at this time, then those who may begin.
  void tick(std::int64_t time) {
    std::map<std::pair<int, std::int64_t>, JobNumbers> come;  // by bracket and rung
    for (std::size_t t = 0; t < trials_.size(); ++t) {
      Trial& trial = trials_[t];
      if (trial.begin < 0 || trial.end >= 0) continue;
      const std::int64_t step = time - trial.begin;
      const Sweep::Trial& made = sweep_.trials[t];
      const bool is_rung = trial.rungs.contains(step);
      // Others learn that it has failed when it would have come to its next rung.
      if (step == made.max_steps || (is_rung && !made.comes_to(step))) {
        trial.end = made.most_steps();
      } else if (is_rung) {
        came_[{trial.bracket, step}].push_back(t);
        come[{trial.bracket, step}].push_back(t);
      }
    }
    for (const auto& [place, jobs] : come) {
      for (const std::size_t t : jobs) {
        if (!goes_on(t, place.second, came_[place])) stopped_.emplace_back(t, place.second);
      }
    }
    for (const auto& [t, rung] : std::exchange(stopped_, {})) trials_[t].end = rung;
    begin(time);
  }

  void begin(std::int64_t time) {
    const auto most = sweep_.rule.kind == Kind::hyperband ? 1'000 : sweep_.rule.most_at_once;
    for (Trial& trial : trials_) {
      const auto trains = [](const Trial& other) { return other.begin >= 0 && other.end < 0; };
      if (trial.begin < 0 && std::ranges::count_if(trials_, trains) < most) trial.begin = time;
    }
  }

  bool goes_on(std::size_t t, std::int64_t rung, const JobNumbers& came) const {
    if (sweep_.rule.kind == Kind::median) return is_above_median(t, rung, came);
    std::size_t better = 0;
    for (const std::size_t other : came) {
      const double mine = score(t, rung), its = score(other, rung);
      better += its < mine || (its == mine && other < t) ? 1 : 0;
    }
    return better <
           std::max<std::size_t>(1, came.size() / static_cast<std::size_t>(sweep_.rule.rungs.eta));
  }

  bool is_above_median(std::size_t t, std::int64_t rung, const JobNumbers& came) const {
    double best = kInfinity;
    for (const std::int64_t at : trials_[t].rungs) {
      if (at <= rung) best = std::min(best, score(t, at));
    }
    std::vector<double> means;
    for (const std::size_t other : came) {
      if (other == t) continue;
      double sum = 0, num = 0;
      for (const std::int64_t at : trials_[other].rungs) {
        if (at > rung) break;
        sum += score(other, at);
        ++num;
      }
      means.push_back(sum / num);
    }
    if (means.size() < 3) return true;
    std::ranges::sort(means);
    const std::size_t half = means.size() / 2;
    const double median = means.size() % 2 == 1 ? means[half] : (means[half - 1] + means[half]) / 2;
    return !(best > median);
  }

  const Sweep& sweep_;
  std::vector<Trial> trials_;
  std::map<std::pair<int, std::int64_t>, JobNumbers> came_;
  std::vector<std::pair<std::size_t, std::int64_t>> stopped_;
};

class Rules : public ::testing::TestWithParam<Kind> {};

TEST_P(Rules, DecideTheSameInAnyOrderAndAfterKills) {
  int num_stopped = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Sweep sweep(GetParam(), seed);
    const Ends expected = Reference(sweep).ends();
    for (std::size_t t = 0; t < expected.size(); ++t) {
      num_stopped += expected[t] < sweep.trials[t].most_steps() ? 1 : 0;
    }
    for (std::uint64_t order = 1; order < 5; ++order) {
      ASSERT_EQ(SweepRun(sweep, order, false).ends(), expected) << "seed " << seed;
      ASSERT_EQ(SweepRun(sweep, order, true).ends(), expected) << "killed, seed " << seed;
    }
  }
  EXPECT_GT(num_stopped, 300);
}
INSTANTIATE_TEST_SUITE_P(EarlyStopping, Rules,
                         ::testing::Values(Kind::hyperband, Kind::asha, Kind::median));

/// The control: trials step in this order, and each is compared with those that have come by then.
Ends ends_by_arrival(const Sweep& sweep, std::uint64_t order) {
  std::mt19937_64 random(order);
  std::map<std::int64_t, std::vector<double>> come;
  Ends ends(sweep.trials.size(), 0);
  std::set<std::size_t> live;
  std::size_t next = 0;
  while (next < ends.size() || !live.empty()) {
    while (next < ends.size() && std::ssize(live) < sweep.rule.most_at_once) live.insert(next++);
    const std::size_t t =
        *std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
    const std::int64_t step = ++ends[t];
    bool goes_on = step < sweep.trials[t].max_steps;
    if (goes_on && sweep.rule.rungs.from(step) == step) {
      auto& all = come[step];
      all.push_back(sweep.loss(t, step));
      const auto better =
          std::ranges::count_if(all, [&](double loss) { return loss < all.back(); });
      goes_on = better < std::max<std::ptrdiff_t>(1, std::ssize(all) / sweep.rule.rungs.eta);
    }
    if (!goes_on) live.erase(t);
  }
  return ends;
}

TEST(EarlyStopping, DependsOnTheOrderIfAshaDecidesAtArrival) {
  int num_different = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Sweep sweep(Kind::asha, seed);
    num_different += ends_by_arrival(sweep, 1) != ends_by_arrival(sweep, 2) ? 1 : 0;
  }
  EXPECT_GT(num_different, 30);
}

std::vector<std::int64_t> holds(const EarlyStopping& rule, std::size_t num) {
  std::vector<std::int64_t> steps;
  for (std::size_t t = 0; t < num; ++t) steps.push_back(rule.hold_step(JobId(t)));
  return steps;
}

/// As in table 1 of the paper: of R = 9 and eta = 3, brackets have 9, 5 and 3 trials.
TEST(EarlyStopping, DealsTrialsToBrackets) {
  EarlyStopping rule({.rungs = {20, 3}, .brackets = 3});
  for (std::size_t t = 0; t < 34; ++t) rule.enter(JobId(t), 0, 180);
  const auto first = holds(rule, 34);
  EXPECT_EQ(std::ranges::count(first, 20), 18);
  EXPECT_EQ(std::ranges::count(first, 60), 10);
  EXPECT_EQ(std::ranges::count(first, kNoStep), 6);
  const auto few = holds(rule, 6);
  EXPECT_EQ(std::ranges::count(few, 20), 3) << "whatever the number of trials";
}

TEST(EarlyStopping, LetsNoBracketWaitForAnother) {
  EarlyStopping rule({.rungs = {2, 2}, .brackets = 2});
  for (std::size_t t = 0; t < 4; ++t) rule.enter(JobId(t), 0, 8);
  ASSERT_EQ(holds(rule, 4), (std::vector<std::int64_t>{2, 4, 2, 4}));
  rule.reach(JobId(1), 4, 2);
  rule.reach(JobId(3), 4, 1);
  const auto verdicts = rule.decide();
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_EQ(verdicts[0].job, JobId(3));
  EXPECT_TRUE(verdicts[0].goes_on);
  EXPECT_FALSE(verdicts[1].goes_on);
  EXPECT_EQ(rule.explain(verdicts[1]),
            "at step 4 it was number 2 of 2 in its bracket by evaluation loss (2.000000); the "
            "best 1 continued");
  EXPECT_EQ(holds(rule, 4), (std::vector<std::int64_t>{2, kNoStep, 2, kNoStep}));
}

/// Job, rung and what becomes of it, in order.
struct Decision {
  std::size_t job;
  std::int64_t rung;
  bool goes_on;
  bool operator==(const Decision&) const = default;
};

std::vector<Decision> decisions(EarlyStopping& rule) {
  std::vector<Decision> all;
  for (const Verdict& verdict : rule.decide()) {
    all.push_back({verdict.job.index(), verdict.rung, verdict.goes_on});
  }
  return all;
}

using Decisions = std::vector<Decision>;

/// Two at once, rungs 1 and 2 of three steps, eta 2. By time, with what has come to the rung:
///   1: A (5) and B (3) at rung 1, one of {3, 5} goes on: B. C begins.
///   2: B (3) at rung 2, alone: it goes on. C (4) at rung 1, one of {3, 4, 5}: C ends, D begins.
///   3: B ends. D (2) at rung 1, two of {2, 3, 4, 5}: D goes on.
///   4: D (4) at rung 2, one of {3, 4}: D ends.
TEST(EarlyStopping, FollowsATraceOfAshaByHand) {
  EarlyStopping rule({.kind = Kind::asha, .rungs = {1, 2}, .most_at_once = 2});
  const JobId a(0), b(1), c(2), d(3);
  for (const JobId job : {a, b, c, d}) rule.enter(job, 0, 3);
  EXPECT_EQ(holds(rule, 4), (std::vector<std::int64_t>{1, 1, 0, 0}));
  EXPECT_TRUE(rule.waits(c)) << "to begin";
  EXPECT_FALSE(rule.compares(c, 0));
  rule.reach(b, 1, 3);
  EXPECT_EQ(decisions(rule), Decisions{}) << "A comes at the same time";
  rule.reach(a, 1, 5);
  EXPECT_EQ(decisions(rule), (Decisions{{1, 1, true}, {0, 1, false}, {2, 0, true}}));
  rule.reach(c, 1, 4);
  EXPECT_EQ(decisions(rule), Decisions{}) << "B comes at the same time";
  rule.reach(b, 2, 3);
  EXPECT_EQ(decisions(rule), (Decisions{{2, 1, false}, {1, 2, true}, {3, 0, true}}));
  rule.reach(d, 1, 2);
  EXPECT_EQ(decisions(rule), Decisions{}) << "B ends at the same time";
  rule.leave(b);
  EXPECT_EQ(decisions(rule), (Decisions{{3, 1, true}}));
  rule.reach(d, 2, 4);
  EXPECT_EQ(decisions(rule), (Decisions{{3, 2, false}}));
}

/// A trial that is submitted during the sweep begins at the time of the last round.
TEST(EarlyStopping, LetsOthersPassALateTrialUnderAsha) {
  EarlyStopping rule({.kind = Kind::asha, .rungs = {2, 2}});
  rule.enter(JobId(0), 0, 100);
  for (const std::int64_t rung : {2, 4, 8}) rule.reach(JobId(0), rung, 1);
  EXPECT_EQ(decisions(rule), (Decisions{{0, 2, true}, {0, 4, true}, {0, 8, true}}));
  rule.enter(JobId(1), 0, 100);  // it comes to rung 2 at time 10, and to rung 8 at time 16
  rule.reach(JobId(0), 16, 1);
  EXPECT_EQ(decisions(rule), Decisions{}) << "time 10 is before time 16";
  rule.reach(JobId(1), 2, 0);
  rule.reach(JobId(1), 4, 0);
  EXPECT_EQ(decisions(rule), (Decisions{{1, 2, true}, {1, 4, true}})) << "at times 10 and 12";
  rule.reach(JobId(1), 8, 0);
  EXPECT_EQ(decisions(rule), (Decisions{{1, 8, true}, {0, 16, true}})) << "both at time 16";
}

/// Rungs 1 and 2. At rung 1 trials lose 1, 2, ... 8: number k + 1 is worse than the median of the
/// others if k > 3. At rung 2 there are four, with means 10.5, 2, 2, 3.95 and bests 1, 2, 1, 3.9.
TEST(EarlyStopping, FollowsATraceOfMedianByHand) {
  EarlyStopping rule(
      {.kind = Kind::median, .rungs = {.min_iter = 1, .interval = 1}, .most_at_once = 8});
  for (std::size_t t = 0; t < 8; ++t) rule.enter(JobId(t), 0, 3);
  for (std::size_t t = 0; t < 8; ++t) rule.reach(JobId(t), 1, static_cast<double>(t + 1));
  EXPECT_EQ(decisions(rule), (Decisions{{0, 1, true},
                                        {1, 1, true},
                                        {2, 1, true},
                                        {3, 1, true},
                                        {4, 1, false},
                                        {5, 1, false},
                                        {6, 1, false},
                                        {7, 1, false}}));
  const std::vector<double> second{20, 2, 1, 3.9};
  for (std::size_t t = 0; t < 4; ++t) rule.reach(JobId(t), 2, second[t]);
  const auto verdicts = rule.decide();
  ASSERT_EQ(verdicts.size(), 4u);
  for (std::size_t t = 0; t < 4; ++t) EXPECT_EQ(verdicts[t].goes_on, t < 3) << t;
  EXPECT_EQ(verdicts[3].loss, 3.9);
  EXPECT_EQ(
      rule.explain(verdicts[3]),
      "at step 2 its best evaluation loss so far was 3.900000, worse than 2.000000, the median "
      "of the means of 3 other trials");
}

TEST(EarlyStopping, StopsNobodyByTheMedianOfFewTrials) {
  for (const std::size_t num : {3u, 4u}) {
    EarlyStopping rule({.kind = Kind::median, .rungs = {.min_iter = 1, .interval = 1}});
    for (std::size_t t = 0; t < num; ++t) rule.enter(JobId(t), 0, 3);
    for (std::size_t t = 0; t < num; ++t) rule.reach(JobId(t), 1, static_cast<double>(t));
    const auto verdicts = rule.decide();
    EXPECT_EQ(std::ranges::count(verdicts, false, &Verdict::goes_on), num < 4 ? 0 : 2);
  }
}

}  // namespace
}  // namespace spillway
