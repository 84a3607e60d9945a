#include "runs/folder/growth.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "spillway/error.h"
#include "tests/support/check/expanded_sweep.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway::testing {
namespace {

const std::string kRates = "train.learning_rate: {values: [1e-3, 3e-3]}";
const std::string kMoreRates = "train.learning_rate: {values: [1e-4, 1e-3, 3e-3]}";
const std::string kSeeds = "seed: {values: [1, 2]}";

/// What the log of a run of these trials has.
RunLog log_of(const std::vector<Trial>& trials) {
  RunLog run;
  for (const Trial& trial : trials) {
    TrialLog known{.parameters = trial.parameters,
                   .max_steps = trial.config.train.max_steps,
                   .extended_from = trial.config.train.extended_from};
    known.result.name = trial.name;
    run.trials.push_back(known);
  }
  return run;
}

std::vector<Trial> grid(const Texts& entries, const std::string& document = kShortestConfig) {
  auto [trials, problems] = sweep(entries, document);
  EXPECT_EQ(problems, Texts{});
  return trials;
}

std::string refusal(const std::vector<Trial>& given, const std::vector<Trial>& before) {
  return thrown<ConfigError>([&] { match_trials(given, log_of(before)); }).what();
}

TEST(Growth, AppendsNewTrialsOfAGrid) {
  const auto before = grid({kRates, kSeeds});
  const auto matched = match_trials(grid({kMoreRates, kSeeds}), log_of(before));
  Texts expected = names(before);
  expected.insert(expected.end(), {"learning_rate=1e-4,seed=1", "learning_rate=1e-4,seed=2"});
  EXPECT_EQ(names(matched), expected);
  EXPECT_EQ(matched[4].config.train.learning_rate, 1e-4);
  EXPECT_EQ(names(match_trials(grid({kMoreRates, kSeeds}), log_of(matched))), expected);
}

TEST(Growth, KeepsTheFirstDraws) {
  const Texts entries{"train.learning_rate: {min: 0.001, max: 0.1}"};
  const auto before = random_sweep(entries, 3).trials;
  const auto matched = match_trials(random_sweep(entries, 8).trials, log_of(before));
  ASSERT_EQ(matched.size(), 8u);
  for (std::size_t t = 0; t < 3; ++t) EXPECT_EQ(matched[t].name, before[t].name);
}

/// Equal draws have a number in their names; the log says which is which.
TEST(Growth, KeepsEqualDrawsDistinct) {
  const Texts entries{"seed: {values: [1, 2]}"};
  const auto before = random_sweep(entries, 4).trials;
  const auto matched = match_trials(random_sweep(entries, 9).trials, log_of(before));
  const Texts all = names(matched);
  EXPECT_EQ(Texts(all.begin(), all.begin() + 4), names(before));
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 9u);
}

TEST(Growth, RefusesToRemoveTrials) {
  const auto before = grid({kRates, kSeeds});
  EXPECT_EQ(refusal(grid({"train.learning_rate: {values: [1e-3]}", kSeeds}), before),
            "sweep.parameters.train.learning_rate: no longer gives 3e-3, the value of trial "
            "'learning_rate=3e-3,seed=1'; a run may get more trials, but keeps those that it has; "
            "train others in another folder");
  EXPECT_NE(refusal(grid({kRates}), before).find("sweep.parameters.seed: no longer gives 1"),
            std::string::npos);
  EXPECT_NE(refusal(grid({kRates, kSeeds, "train.batch_size: {values: [8, 16]}"}), before)
                .find("sweep: does not give the trial 'learning_rate=1e-3,seed=1'"),
            std::string::npos);
  const Texts draws{"train.learning_rate: {min: 0.001, max: 0.1}"};
  EXPECT_EQ(refusal(random_sweep(draws, 2).trials, random_sweep(draws, 5).trials),
            "sweep.run_cap: is 2, but the run has 5 trials; write at least 5");
}

std::string with_steps(int steps) {
  return kShortestConfig + fmt::format("train: {{max_steps: {}}}\n", steps);
}

TEST(Growth, KnowsTheFormerLengthsOfALongerRun) {
  std::vector<std::int64_t> ends;
  auto before = grid({kRates}, with_steps(10));
  RunConfig stored = before.front().config;
  for (const int steps : {10, 20, 20, 50}) {
    auto longer = match_trials(grid({kMoreRates}, with_steps(steps)), log_of(before));
    Findings findings;
    extend_trials(longer, log_of(before), stored, findings);
    EXPECT_TRUE(findings.empty());
    if (steps > stored.train.max_steps) ends.push_back(stored.train.max_steps);
    ASSERT_EQ(longer.size(), 3u);
    for (const Trial& trial : longer) EXPECT_EQ(trial.config.train.extended_from, ends);
    before = longer;
    stored = longer.front().config;
  }
  EXPECT_EQ(ends, (std::vector<std::int64_t>{10, 20}));
}

TEST(Growth, RefusesToShortenARun) {
  const auto before = grid({kRates}, with_steps(10));
  auto shorter = grid({kRates}, with_steps(9));
  Findings findings;
  extend_trials(shorter, log_of(before), before.front().config, findings);
  EXPECT_EQ(messages(findings),
            Texts{"train.max_steps: is 9, but the run trains 10 steps; write at least 10"});
}

/// A crash may come after the configuration was written, and before the log.
TEST(Growth, GivesTheSameTrialsFromTheWrittenConfiguration) {
  const TemporaryFolder temporary;
  const OutputFolder folder(temporary.path());
  const auto before = grid({kRates, kSeeds}, with_steps(10));
  temporary.write("config.yaml", to_yaml(before.front().config));
  const RunConfig stored = stored_config(folder).value();
  store_growth(folder, stored, stored);
  EXPECT_EQ(temporary.read("config.yaml"), to_yaml(before.front().config));

  auto given = grid({kMoreRates, kSeeds}, with_steps(30));
  given.front().config.train.learning_rate = 7;  // of one resume only
  store_growth(folder, stored, given.front().config);
  Findings findings;
  const auto again = expand_trials(parse_yaml(temporary.read("config.yaml")), findings);
  EXPECT_TRUE(findings.empty());
  EXPECT_EQ(names(again), names(given));
  for (const Trial& trial : again) {
    EXPECT_EQ(trial.config.train.max_steps, 30);
    EXPECT_EQ(trial.config.train.extended_from, std::vector<std::int64_t>{10});
  }
}

TEST(Growth, AcceptsAFolderWithoutItsConfiguration) {
  const TemporaryFolder folder;
  EXPECT_FALSE(stored_config(OutputFolder(folder.path())));
}

}  // namespace
}  // namespace spillway::testing
