#include "runs/config/sweep_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/check/expanded_sweep.h"

namespace spillway {
namespace {

using testing::kShortestConfig;
using testing::random_sweep;
using testing::Texts;

const std::string kField = "line 6: sweep.parameters.train.learning_rate";

/// The problems of one swept key, without the prefix that all share.
Texts problems_of(const std::string& entry, bool in_grid = false) {
  const Texts entries{"train.learning_rate: " + entry};
  Texts all = (in_grid ? testing::sweep(entries) : random_sweep(entries, 2)).problems;
  for (auto& text : all) {
    EXPECT_TRUE(text.starts_with(kField)) << text;
    text = text.substr(std::min(kField.size(), text.size()));
  }
  return all;
}

std::string_view distribution(const std::string& entry) {
  Findings findings;
  const auto text = kShortestConfig + "sweep: {parameters: {a: " + entry + "}}\n";
  return read_config(parse_yaml(text), findings).sweep.parameters.at(0).distribution.name;
}

TEST(SweepConfig, InfersTheDistributionFromKeys) {
  EXPECT_EQ(distribution("{value: 1}"), "constant");
  EXPECT_EQ(distribution("{values: [1]}"), "categorical");
  EXPECT_EQ(distribution("{min: 1, max: 2}"), "int_uniform");
  EXPECT_EQ(distribution("{min: 1, max: 2.0}"), "uniform");
  EXPECT_EQ(distribution("{min: 1e1, max: 20}"), "uniform");
  EXPECT_EQ(distribution("{min: 1, max: 2, distribution: uniform}"), "uniform");
  for (const auto& known : kDistributions)
    EXPECT_EQ(distribution("{distribution: " + std::string(known.name) + "}"), known.name);
}

/// An entry of a random sweep, and its problems.
constexpr const char* kEntries = R"({min: 0.1} -> .max: is missing; write the largest value
{max: 1} -> .min: is missing; write the least value
{distribution: constant} -> .value: is missing; write it, such as {value: 1e-3}
{distribution: categorical} -> .values: is missing; list them, such as {values: [1e-3, 1e-2]}
{mu: 1} -> .distribution: is missing; write one, such as normal
{values: [1, 2], min: 3} -> .min: cannot be used with the distribution categorical; remove it
{distribution: normal, max: 3} -> .max: cannot be used with the distribution normal; remove it
{min: 1, max: 3, q: 2} -> .q: cannot be used with the distribution int_uniform; remove it
{value: 1, mu: 1} -> .mu: cannot be used with the distribution constant; remove it
{distribution: uniform, min: 1, max: 2, colour: 2} -> .colour: unknown key; remove it
{min: 2.5, max: 1} -> .max: is 1, must be at least min, which is 2.5
{min: 0.5, max: 0.5} ->
{min: x, max: 1} -> .min: is 'x', must be a number
{distribution: int_uniform, min: 0.5, max: 1} -> .min: is '0.5', must be an integer from -9007199254740992 to 9007199254740992
{min: 0, max: 18446744073709551615} -> .max: is '18446744073709551615', must be an integer from -9007199254740992 to 9007199254740992
{distribution: log_uniform_values, min: 0, max: 1} -> .min: is 0, must be above 0
{distribution: q_log_uniform_values, min: 0, max: 1} -> .min: is 0, must be above 0
{distribution: inv_log_uniform_values, min: 0, max: 1} -> .min: is 0, must be above 0
{distribution: q_uniform, min: 0, max: 1, q: 0} -> .q: is '0', must be a number above 0
{distribution: normal, sigma: -1} -> .sigma: is '-1', must be a number of at least 0
{distribution: q_uniform, min: 0.1, max: 0.9, q: 1} -> : has no multiple of q from min to max; write a smaller q
{distribution: q_uniform, min: 0.3, max: 0.3, q: 0.1} ->
{values: [1, 2], probabilities: [0.25, 0.75]} ->
{values: [1, 2], probabilities: [1]} -> .probabilities: are 1 for 2 values; write one for each
{values: [1, 2], probabilities: []} -> .probabilities: is an empty list, must be a list, such as [1, 2]
{values: [1, 2], probabilities: [0.5, 0.4]} -> .probabilities: add up to 0.9, must add up to 1
{values: [1, 2], probabilities: 0.5} -> .probabilities: is '0.5', must be a list, such as [1, 2]
{values: [1, 2], probabilities: [1.5, -0.5]} -> .probabilities[1]: is '-0.5', must be a number of at least 0
)";

TEST(SweepConfig, ChecksEntries) {
  std::istringstream lines(kEntries);
  for (std::string line; std::getline(lines, line);) {
    const auto arrow = line.find(" ->");
    const std::string problem = line.substr(std::min(line.size(), arrow + 4));
    EXPECT_EQ(problems_of(line.substr(0, arrow)), problem.empty() ? Texts{} : Texts{problem})
        << line;
  }
  const auto found = problems_of("{distribution: gamma, min: 1}");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].starts_with(".distribution: is 'gamma', must be constant, ")) << found[0];
}

TEST(SweepConfig, RequiresValuesForAGrid) {
  for (const auto& known : kDistributions) {
    const bool discrete = known.name == "int_uniform" || known.name == "q_uniform";
    std::string entry = "{distribution: " + std::string(known.name);
    if (known.is_bounded()) {
      entry += ", min: 1, max: 2";
    } else if (!known.is_normal()) {
      continue;
    }
    const Texts needs{": is continuous (" + std::string(known.name) +
                      "); write values, or use method: random"};
    EXPECT_EQ(problems_of(entry + "}", true), discrete ? Texts{} : needs);
  }
  EXPECT_EQ(problems_of("{values: [1, 2], probabilities: [0.5, 0.5]}", true),
            Texts{".probabilities: cannot be used in a grid; remove them, or use method: random"});
}

TEST(SweepConfig, ReportsTheLineOfTheKey) {
  const auto [trials, found] =
      testing::sweep({"train.data_parallel:", "  values: [1, 2]", "  probabilities: [0.5, 0.5]",
                      "seed:", "  min: 3", "  max: 2", "  q: 1"});
  EXPECT_EQ(found,
            (Texts{"line 8: sweep.parameters.train.data_parallel.probabilities: cannot be used in "
                   "a grid; remove them, or use method: random",
                   "line 11: sweep.parameters.seed.max: is 2, must be at least min, which is 3",
                   "line 12: sweep.parameters.seed.q: cannot be used with the distribution "
                   "int_uniform; remove it"}));
}

TEST(SweepConfig, RequiresTheNumberOfTrialsForRandom) {
  const auto with = [](const Texts& settings) {
    return testing::sweep({"seed: {min: 1, max: 2}"}, kShortestConfig, settings).problems;
  };
  const std::string missing = "random needs the number of trials";
  EXPECT_EQ(with({"method: random"}), Texts{"line 4: sweep.run_cap: is missing; " + missing});
  EXPECT_EQ(with({"method: random", "run_cap: 0"}),
            Texts{"line 8: sweep.run_cap: is 0; " + missing});
  EXPECT_EQ(with({"method: random", "run_cap: many"}).size(), 1u);
  EXPECT_EQ(with({"run_cap: 10001"}),
            Texts{"line 7: sweep.run_cap: is '10001', must be an integer from 0 to 10000"});
}

/// A sweep of two trials with 50 steps; `settings` follow in the section `sweep`.
auto with_early_stopping(const std::string& entry, Texts settings = {}) {
  settings.insert(settings.begin(), "early_terminate: " + entry);
  return testing::sweep({"seed: {min: 1, max: 2}"}, kShortestConfig, settings);
}

std::optional<EarlyTerminate> early_stopping(const std::string& entry, const Texts& settings = {}) {
  return with_early_stopping(entry, settings).trials.at(0).config.session.early_terminate;
}

TEST(SweepConfig, ReadsTheRuleAndTheMetricOfEarlyStopping) {
  EXPECT_EQ(early_stopping("{type: hyperband, min_iter: 20}"), (EarlyTerminate{20, 3}));
  EXPECT_EQ(early_stopping("{type: hyperband, min_iter: 5, eta: 4}"), (EarlyTerminate{5, 4}));
  EXPECT_EQ(early_stopping("null"), std::nullopt);
  EXPECT_EQ(early_stopping("{type: hyperband, min_iter: 5, brackets: 2}"),
            (EarlyTerminate{.min_iter = 5, .brackets = 2}));
  EXPECT_EQ(
      early_stopping("{type: asha, min_iter: 5, eta: 2, max_concurrent_trials: 3}"),
      (EarlyTerminate{
          .min_iter = 5, .eta = 2, .type = EarlyTerminateKind::asha, .max_concurrent_trials = 3}));
  EXPECT_EQ(early_stopping("{type: median, min_iter: 5, interval: 10}"),
            (EarlyTerminate{.min_iter = 5, .type = EarlyTerminateKind::median, .interval = 10}));
  const auto pbt =
      early_stopping("{type: pbt, min_iter: 5, interval: 10, quantile: 0.5}", {"seed: 9"});
  EXPECT_EQ(pbt, (EarlyTerminate{.min_iter = 5,
                                 .type = EarlyTerminateKind::pbt,
                                 .interval = 10,
                                 .quantile = 0.5,
                                 .seed = 9}));
  EXPECT_EQ(early_stopping("{type: hyperband, min_iter: 20}",
                           {"metric: {name: final_loss, goal: maximize}"}),
            (EarlyTerminate{
                .min_iter = 20, .metric = MetricKind::final_loss, .goal = MetricGoal::maximize}));
}

/// Rungs 5 and 15 and 45 of 50 steps: a fourth bracket is never compared.
TEST(SweepConfig, CountsAllBrackets) {
  const auto brackets = [](const std::string& more) {
    return early_stopping("{type: hyperband, min_iter: 5" + more + "}")->brackets;
  };
  EXPECT_EQ(brackets(""), 1);
  EXPECT_EQ(brackets(", brackets: all"), 4);
  EXPECT_EQ(brackets(", brackets: all, eta: 10"), 2) << "the last rung is the last step";
  EXPECT_EQ(with_early_stopping("{type: hyperband, min_iter: 5, brackets: 6}").problems,
            Texts{"line 7: sweep.early_terminate.brackets: is 6, but no trial takes more than 50 "
                  "steps, so trials of 3 brackets would never be compared; write at most 4, or "
                  "all"});
}

TEST(SweepConfig, RefusesEarlyStoppingThatComparesNothing) {
  EXPECT_EQ(with_early_stopping("{type: hyperband, min_iter: 50}").problems,
            Texts{"line 7: sweep.early_terminate.min_iter: is 50, but no trial takes more than 50 "
                  "steps, so none would be compared; write a smaller number"});
  const auto blind = [](const Texts& settings) {
    const auto swept =
        testing::sweep({"data.eval_fraction: {values: [0.1, 0]}"}, kShortestConfig, settings);
    return swept.problems;
  };
  const std::string rule = "early_terminate: {type: hyperband, min_iter: 5}";
  EXPECT_EQ(blind({"metric: {name: eval_loss}", rule}),
            Texts{"line 7: sweep.metric.name: is eval_loss, by which early stopping compares "
                  "trials, but data.eval_fraction is 0; raise it, give data.eval_path, or write "
                  "final_loss to compare training losses"});
  EXPECT_EQ(blind({rule}).size(), 1u) << "eval_loss is the default";
  EXPECT_EQ(blind({"metric: {name: final_loss}", rule}), Texts{});
  EXPECT_EQ(blind({}), Texts{});
}

TEST(SweepConfig, RefusesAMetricThatTheFamilyLacks) {
  const auto problems_of = [](const std::string& metric) {
    return testing::sweep({"seed: {values: [1, 2]}"}, kShortestConfig, {metric}).problems;
  };
  EXPECT_EQ(problems_of("metric: {name: accuracy, goal: maximize}"),
            Texts{"line 7: sweep.metric.name: is accuracy, which model.family gpt does not have; "
                  "write eval_loss or perplexity"});
  EXPECT_EQ(problems_of("metric: {name: perplexity}"), Texts{});
}

TEST(SweepConfig, TakesTheKeysOfTheRuleOfEarlyStopping) {
  const auto problems_of = [](const std::string& entry) {
    return with_early_stopping(entry).problems;
  };
  const std::string place = "line 7: sweep.early_terminate";
  EXPECT_EQ(problems_of("{}"),
            (Texts{place + ".type: is missing; write one, such as type: hyperband",
                   place + ".min_iter: is missing; write after how many steps trials are compared "
                           "first"}));
  EXPECT_EQ(problems_of("{type: bohb, min_iter: 0, eta: 1}"),
            (Texts{place + ".type: is 'bohb', must be hyperband, asha, median or pbt",
                   place + ".min_iter: is '0', must be an integer from 1 to 1000000000000",
                   place + ".eta: is '1', must be an integer from 2 to 1000"}));
  EXPECT_EQ(
      problems_of("{type: hyperband, min_iter: 2, s: 2, strict: true}"),
      (Texts{place + ".s: unknown key; remove it", place + ".strict: unknown key; remove it"}));
  EXPECT_EQ(problems_of("{type: median, min_iter: 2, eta: 3}"),
            Texts{place + ".eta: unknown key; remove it"});
  EXPECT_EQ(problems_of("{type: asha, min_iter: 2, brackets: 3, max_concurrent_trials: 0}"),
            (Texts{place + ".max_concurrent_trials: is '0', must be an integer from 1 to 10000",
                   place + ".brackets: unknown key; remove it"}));
}

TEST(SweepConfig, ReportsAllErrorsTogether) {
  const auto [trials, found] =
      testing::sweep({"a.b: {min: 2, max: 1}", "train.data_parallel: {values: [x]}",
                      "train.gamma: {value: 1}", "seed: {distribution: normal}"},
                     kShortestConfig, {"method: bayes", "run_cap: -1", "metric: {goal: best}"});
  EXPECT_EQ(
      found,
      (Texts{"line 6: sweep.parameters.a.b.max: is 1, must be at least min, which is 2",
             "line 7: train.data_parallel: is 'x', must be an integer from 1 to 65536, or auto",
             "line 8: train.gamma: unknown key; remove it",
             "line 10: sweep.method: is 'bayes', must be grid or random",
             "line 11: sweep.run_cap: is '-1', must be an integer from 0 to 10000",
             "line 12: sweep.metric.goal: is 'best', must be minimize or maximize"}));
}

}  // namespace
}  // namespace spillway
