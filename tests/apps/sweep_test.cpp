#include "apps/sweep.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/config_text.h"

namespace spillway {
namespace {

using testing::kShortestConfig;
using testing::messages;
using Texts = std::vector<std::string>;

struct Expanded {
  std::vector<Trial> trials;
  Texts problems;
};

/// Each line is one entry of sweep.parameters; the first stands on line 6.
Expanded sweep(const Texts& entries, const std::string& document = kShortestConfig) {
  std::string text = document + "sweep:\n  parameters:\n";
  for (const auto& entry : entries) text += "    " + entry + "\n";
  Findings findings;
  auto trials = expand_trials(parse_yaml(text), findings);
  return {std::move(trials), messages(findings)};
}

Texts names(const std::vector<Trial>& trials) {
  Texts all;
  for (const auto& trial : trials) all.push_back(trial.name);
  return all;
}

TEST(Sweep, AGridRunsTheLastKeyFastest) {
  const auto [trials, problems] = sweep({"train.learning_rate: {values: [3e-4, 1e-3]}",
                                         "model.hidden_size: {values: [64, 128, 256]}"});
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(names(trials),
            (Texts{"learning_rate=3e-4,hidden_size=64", "learning_rate=3e-4,hidden_size=128",
                   "learning_rate=3e-4,hidden_size=256", "learning_rate=1e-3,hidden_size=64",
                   "learning_rate=1e-3,hidden_size=128", "learning_rate=1e-3,hidden_size=256"}));
  EXPECT_EQ(trials[4].config.train.learning_rate, 1e-3);
  EXPECT_EQ(trials[4].config.model.hidden_size, 128);
  using Parameters = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(trials[4].parameters,
            (Parameters{{"train.learning_rate", "1e-3"}, {"model.hidden_size", "128"}}));
}

TEST(Sweep, WithoutOneThereIsOneTrialWithTheNameOfTheRun) {
  Findings findings;
  const auto trials = expand_trials(parse_yaml(kShortestConfig + "name: a/b\n"), findings);
  EXPECT_TRUE(findings.empty());
  EXPECT_EQ(names(trials), Texts{"a_b"});
  EXPECT_TRUE(trials[0].parameters.empty());
}

TEST(Sweep, SweptValuesReplaceThoseOfTheDocument) {
  const auto [trials, problems] =
      sweep({"seed: {values: [5, 6]}"}, "seed: 1\n" + kShortestConfig + "train: {lanes: 1}\n");
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(trials[0].config.train.seed, 5u);
  EXPECT_EQ(trials[1].config.train.seed, 6u);
}

TEST(Sweep, AMissingKeyMayBeSwept) {
  const auto [trials, problems] =
      sweep({"data.path: {values: [a.txt, [b.txt, c.txt]]}"}, "devices: [{memory: 1GiB}]\n");
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(names(trials), (Texts{"path=a.txt", "path=_b.txt,_c.txt_"}));
  EXPECT_EQ(trials[1].config.data.paths, (Texts{"b.txt", "c.txt"}));
  EXPECT_EQ(trials[1].parameters[0].second, "[b.txt, c.txt]");
}

TEST(Sweep, NamesOfTrialsDiffer) {
  const auto [trials, problems] = sweep({"data.path: {values: [a/b, a:b, a b]}"});
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(names(trials), (Texts{"path=a_b", "path=a_b-2", "path=a_b-3"}));
}

TEST(Sweep, KeysThatEndTheSameAreNamedWhole) {
  const auto [trials, problems] =
      sweep({"train.size: {values: [1]}", "model.size: {values: [2]}", "seed: {values: [3]}"});
  EXPECT_EQ(problems.size(), 2u) << "there are no such keys";
  EXPECT_EQ(names(trials), Texts{"train.size=1,model.size=2,seed=3"});
}

TEST(Sweep, AValueStandsOnce) {
  const auto [trials, problems] =
      sweep({"seed: {values: [1, 2,", "  1, 3, 2]}", "train.lanes: {values: [1]}"});
  EXPECT_EQ(problems,
            (Texts{"line 7: sweep.parameters.seed.values: 1 stands here twice; remove one",
                   "line 7: sweep.parameters.seed.values: 2 stands here twice; remove "
                   "one"}));
  EXPECT_EQ(trials.size(), 1u);
}

TEST(Sweep, WhatAllTrialsShareCannotBeSwept) {
  for (const std::string key :
       {"name", "output_dir", "devices", "devices[0].memory", "host_memory", "scheduling.policy",
        "scheduling.double_buffer", "scheduling", "sweep", "sweep.metric.name"}) {
    const auto [trials, problems] = sweep({key + ": {values: [1, 2]}"});
    EXPECT_EQ(problems, Texts{"line 6: sweep.parameters." + key +
                              ": cannot be swept: all trials of a run share it"});
    EXPECT_EQ(trials.size(), 1u) << key;
  }
  EXPECT_EQ(sweep({"scheduling.order: {values: [vn_major, shard_major]}"}).problems, Texts{});
}

TEST(Sweep, AKeyInsideASweptSectionCannotBeSwept) {
  const auto [trials, problems] = sweep({"model.hidden_size: {values: [64, 128]}",
                                         "model: {values: [{dropout: 0}, {dropout: 0.5}]}"});
  EXPECT_EQ(problems, Texts{"line 6: sweep.parameters.model.hidden_size: lies in model, which is "
                            "swept too; sweep one of them"});
}

TEST(Sweep, ASectionMayBeSwept) {
  const auto [trials, problems] =
      sweep({"model: {values: [{hidden_size: 64}, {hidden_size: 96, num_hidden_layers: 2}]}"});
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(trials.at(1).config.model.hidden_size, 96);
  EXPECT_EQ(trials.at(1).config.model.num_hidden_layers, 2);
}

TEST(Sweep, UnknownKeysAndBadValuesAreAllNamedOnce) {
  const auto [trials, problems] =
      sweep({"train.learnig_rate: {values: [1, 2]}", "train.lanes: {values: [1, x, y]}",
             "seed: {values: [~]}"});
  EXPECT_EQ(problems,
            (Texts{"line 6: train.learnig_rate: unknown key; did you mean train.learning_rate?",
                   "line 7: train.lanes: 'x' is no whole number; write a whole number from 1 to "
                   "65536",
                   "line 7: train.lanes: 'y' is no whole number; write a whole number from 1 to "
                   "65536",
                   "line 8: seed: no value stands where one value belongs; write a whole number "
                   "from 0 to 18446744073709551615"}));
}

TEST(Sweep, AKeyThatNamesNoPlaceIsAnError) {
  for (const std::string key : {"data.path[0]", "train.", ".seed", "seed.x"}) {
    const auto [trials, problems] =
        sweep({"'" + key + "': {values: [1, 2]}"}, kShortestConfig + "seed: 3\n");
    EXPECT_EQ(problems,
              Texts{"line 7: sweep.parameters." + key + ": names no place in the configuration"});
  }
}

TEST(Sweep, TooManyTrialsAreAnError) {
  std::string values = "0";
  for (int i = 1; i < 101; ++i) values += ", " + std::to_string(i);
  const Texts entries{"seed: {values: [" + values + "]}",
                      "train.eval_steps: {values: [" + values + "]}"};
  const auto [trials, problems] = sweep(entries);
  EXPECT_EQ(problems, Texts{"sweep.parameters: makes more than 10000 trials; list fewer values"});
  EXPECT_EQ(trials.size(), 1u);
}

TEST(Sweep, ABadSweepLeavesTheOtherFindings) {
  const auto [trials, problems] =
      sweep({"devices: {values: [1]}", "seed: {values: []}"}, kShortestConfig + "sede: 1\n");
  EXPECT_EQ(
      problems,
      (Texts{"line 4: sede: unknown key; did you mean seed?",
             "line 7: sweep.parameters.devices: cannot be swept: all trials of a run share it",
             "line 8: sweep.parameters.seed.values: write a list of at least one value"}));
}

}  // namespace
}  // namespace spillway
