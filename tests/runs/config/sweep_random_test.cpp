#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "runs/config/sweep_values.h"
#include "tests/support/check/expanded_sweep.h"

namespace spillway {
namespace {

using testing::kShortestConfig;
using testing::names;
using testing::random_sweep;
using testing::Texts;

constexpr int kDraws = 4000;

/// The draws of trials 0, 1, ..., through the parsed section as a user writes it.
Texts draws(const std::string& entry, int count = kDraws, std::uint64_t seed = 0,
            const std::string& key = "x") {
  Findings findings;
  const auto config =
      read_config(parse_yaml(kShortestConfig + "sweep: {method: random, run_cap: 1, parameters: {" +
                             key + ": " + entry + "}}\n"),
                  findings);
  EXPECT_EQ(testing::messages(findings), Texts{});
  Texts all;
  for (int i = 0; i < count; ++i)
    all.push_back(
        random_value(config.sweep.parameters.at(0), seed, static_cast<std::uint32_t>(i)).text);
  return all;
}

std::vector<double> numbers(const std::string& entry) {
  std::vector<double> all;
  for (const auto& text : draws(entry)) all.push_back(std::stod(text));
  return all;
}

struct Moments {
  double mean = 0, deviation = 0;
};

template <typename Function>
Moments moments(const std::vector<double>& values, Function of) {
  double sum = 0, squares = 0;
  for (double v : values) {
    sum += of(v);
    squares += of(v) * of(v);
  }
  const auto n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * (sum / n))};
}

double same(double x) { return x; }
double log_of(double x) { return std::log(x); }

/// Within five standard errors; the deviation of a uniform variable is its width / sqrt(12).
void expect_moments(const Moments& found, double mean, double deviation) {
  EXPECT_NEAR(found.mean, mean, 5 * deviation / std::sqrt(kDraws));
  EXPECT_NEAR(found.deviation, deviation, 0.05 * deviation);
}

void expect_within(const std::vector<double>& values, double min, double max) {
  EXPECT_GE(*std::ranges::min_element(values), min);
  EXPECT_LE(*std::ranges::max_element(values), max);
}

void expect_multiples(const std::vector<double>& values, double q) {
  for (double v : values) EXPECT_NEAR(v / q, std::round(v / q), 1e-9);
}

TEST(RandomSweep, FillsTheRangeOfUniform) {
  for (const char* entry : {"{min: -1.0, max: 3}", "{distribution: uniform, min: -1, max: 3}"}) {
    const auto values = numbers(entry);
    expect_within(values, -1, 3);
    expect_moments(moments(values, same), 1, 4 / std::sqrt(12));
  }
}

TEST(RandomSweep, DrawsBothEndsOfIntUniformAsOften) {
  std::map<std::string, int> taken;
  for (const auto& text : draws("{min: -2, max: 2}")) ++taken[text];
  ASSERT_EQ(taken.size(), 5u);
  for (const auto& [text, count] : taken) EXPECT_NEAR(count, kDraws / 5, 150) << text;
  EXPECT_EQ(draws("{min: 1000000, max: 1000000}", 1), Texts{"1000000"}) << "not 1e+06";
}

TEST(RandomSweep, DrawsLogUniformUniformlyInTheLogarithm) {
  for (const char* name : {"log_uniform_values", "inv_log_uniform_values"}) {
    const auto values = numbers(std::string("{distribution: ") + name + ", min: 1e-5, max: 1e-1}");
    expect_within(values, 1e-5, 1e-1);
    expect_moments(moments(values, log_of), std::log(1e-3), std::log(1e4) / std::sqrt(12));
  }
  EXPECT_NE(numbers("{distribution: log_uniform_values, min: 1e-5, max: 1e-1}"),
            numbers("{distribution: inv_log_uniform_values, min: 1e-5, max: 1e-1}"));
}

TEST(RandomSweep, DrawsNormalWithMeanAndDeviation) {
  expect_moments(moments(numbers("{distribution: normal}"), same), 0, 1);
  expect_moments(moments(numbers("{distribution: normal, mu: -4, sigma: 0.5}"), same), -4, 0.5);
  expect_moments(moments(numbers("{distribution: log_normal, mu: -4, sigma: 0.5}"), log_of), -4,
                 0.5);
}

TEST(RandomSweep, DrawsMultiplesOfQWithinTheBounds) {
  const auto uniform = numbers("{distribution: q_uniform, min: 8, max: 64, q: 8}");
  expect_multiples(uniform, 8);
  expect_within(uniform, 8, 64);
  expect_moments(moments(uniform, same), 36, 56 / std::sqrt(12));
  const auto inside = numbers("{distribution: q_uniform, min: 9, max: 63, q: 8}");
  expect_within(inside, 16, 56);
  const auto log = numbers("{distribution: q_log_uniform_values, min: 0.05, max: 2, q: 0.05}");
  expect_multiples(log, 0.05);
  expect_within(log, 0.05, 2);
  const auto normal = numbers("{distribution: q_normal, mu: 3, sigma: 2, q: 0.5}");
  expect_multiples(normal, 0.5);
  expect_moments(moments(normal, same), 3, 2);
  expect_multiples(numbers("{distribution: q_log_normal}"), 1);
}

TEST(RandomSweep, WritesShortNumbers) {
  for (const auto& text : draws("{distribution: q_uniform, min: 0.0, max: 1, q: 0.1}"))
    EXPECT_LE(text.size(), 3u) << text;
  for (const auto& text : draws("{distribution: log_uniform_values, min: 1e-5, max: 1e-1}"))
    EXPECT_LE(text.size(), 14u) << text;
}

TEST(RandomSweep, DrawsCategoricalByProbabilities) {
  const auto counts = [](const std::string& entry) {
    std::map<std::string, int> taken;
    for (const auto& text : draws(entry)) ++taken[text];
    return taken;
  };
  auto equal = counts("{values: [a, b, c]}");
  for (const char* text : {"a", "b", "c"}) EXPECT_NEAR(equal[text], kDraws / 3, 150);
  auto weighed = counts("{values: [a, b, c, d], probabilities: [0.7, 0, 0.3, 0]}");
  EXPECT_NEAR(weighed["a"], 0.7 * kDraws, 150);
  EXPECT_NEAR(weighed["c"], 0.3 * kDraws, 150);
  EXPECT_EQ(weighed.size(), 2u);
}

TEST(RandomSweep, DependsOnSeedTrialAndKeyOnly) {
  const std::string entry = "{min: 0, max: 1000000}";
  const auto first = draws(entry, 100);
  EXPECT_EQ(draws(entry, 100), first);
  EXPECT_NE(draws(entry, 100, 1), first);
  EXPECT_NE(draws(entry, 100, 0, "y"), first);
  EXPECT_NE(draws(entry, 100, std::uint64_t{1} << 40), first);
  // Fixed, so that a file gives the same trials in every version.
  EXPECT_EQ(draws(entry, 3), (Texts{"548505", "276460", "586422"}));
  EXPECT_EQ(draws("{distribution: log_uniform_values, min: 1e-5, max: 1}", 2),
            (Texts{"0.0055274471", "0.00024115697"}));
  EXPECT_EQ(draws("{distribution: normal}", 2), (Texts{"-0.99856472", "1.1639185"}));
}

TEST(RandomSweep, DrawsKeysAndTrialsIndependently) {
  const auto correlation = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < b.size(); ++i) sum += (a[i] - 0.5) * (b[i] - 0.5) * 12;
    return sum / static_cast<double>(b.size());
  };
  std::vector<double> x, y;
  for (const auto& text : draws("{min: 0.0, max: 1}")) x.push_back(std::stod(text));
  for (const auto& text : draws("{min: 0.0, max: 1}", kDraws, 0, "y")) y.push_back(std::stod(text));
  EXPECT_NEAR(correlation(x, y), 0, 0.08);
  EXPECT_NEAR(correlation(x, {x.begin() + 1, x.end()}), 0, 0.08);
  EXPECT_NEAR(correlation(x, x), 1, 0.08);
}

TEST(RandomSweep, MakesRunCapTrials) {
  const Texts entries{"train.learning_rate: {distribution: log_uniform_values, min: 1e-4, max: 1}",
                      "seed: {min: 1, max: 1000000}", "train.max_steps: {value: 3}"};
  const auto few = random_sweep(entries, 3), many = random_sweep(entries, 20);
  EXPECT_EQ(few.problems, Texts{});
  ASSERT_EQ(few.trials.size(), 3u);
  ASSERT_EQ(many.trials.size(), 20u);
  for (std::size_t t = 0; t < 3; ++t) EXPECT_EQ(few.trials[t].name, many.trials[t].name);
  const auto& trial = few.trials[1];
  ASSERT_EQ(trial.parameters.size(), 2u);
  EXPECT_EQ(trial.name,
            "learning_rate=" + trial.parameters[0].second + ",seed=" + trial.parameters[1].second);
  EXPECT_EQ(trial.config.train.learning_rate, std::stod(trial.parameters[0].second));
  EXPECT_EQ(std::to_string(trial.config.train.seed), trial.parameters[1].second);
  EXPECT_EQ(trial.config.train.max_steps, 3);
}

TEST(RandomSweep, UsesTheSeedOfTheRun) {
  const Texts entries{"train.data_parallel: {min: 1, max: 60000}"};
  const auto with = [&](const std::string& seed, const Texts& settings = {}) {
    Texts all{"method: random", "run_cap: 5"};
    all.insert(all.end(), settings.begin(), settings.end());
    return names(testing::sweep(entries, kShortestConfig + "seed: " + seed + "\n", all).trials);
  };
  EXPECT_NE(with("1"), with("2"));
  EXPECT_EQ(with("1", {"seed: 3"}), with("2", {"seed: 3"}));
  EXPECT_EQ(with("1", {"seed: 2"}), with("2"));
}

TEST(RandomSweep, KeepsDrawsWhenAParameterIsAdded) {
  const std::string lanes = "train.data_parallel: {min: 1, max: 60000}";
  const auto one = random_sweep({lanes}, 5).trials;
  const auto two = random_sweep({"seed: {min: 1, max: 60000}", lanes}, 5).trials;
  for (std::size_t t = 0; t < 5; ++t)
    EXPECT_EQ(two[t].config.train.data_parallel, one[t].config.train.data_parallel);
}

TEST(RandomSweep, KeepsEqualDrawsAsSeparateTrials) {
  EXPECT_EQ(names(random_sweep({"seed: {values: [1]}"}, 3).trials),
            (Texts{"seed=1", "seed=1-2", "seed=1-3"}));
}

}  // namespace
}  // namespace spillway
