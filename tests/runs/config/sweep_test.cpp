#include "runs/config/sweep.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/check/expanded_sweep.h"

namespace spillway {
namespace {

using testing::kShortestConfig;
using testing::messages;
using testing::names;
using testing::sweep;
using testing::Texts;

TEST(Sweep, VariesTheLastKeyOfAGridFastest) {
  const auto [trials, problems] = sweep({"train.learning_rate: {values: [3e-4, 1e-3]}",
                                         "model.hidden_size: {values: [64, 128, 256]}"});
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(names(trials),
            (Texts{"learning_rate=3e-4,hidden_size=64", "learning_rate=3e-4,hidden_size=128",
                   "learning_rate=3e-4,hidden_size=256", "learning_rate=1e-3,hidden_size=64",
                   "learning_rate=1e-3,hidden_size=128", "learning_rate=1e-3,hidden_size=256"}));
  EXPECT_EQ(trials[4].config.train.learning_rate, 1e-3);
  EXPECT_EQ(trials[4].config.gpt.hidden_size, 128);
  using Parameters = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(trials[4].parameters,
            (Parameters{{"train.learning_rate", "1e-3"}, {"model.hidden_size", "128"}}));
}

TEST(Sweep, MakesOneTrialWithoutASweep) {
  Findings findings;
  const auto trials = expand_trials(parse_yaml(kShortestConfig + "name: a/b\n"), findings);
  EXPECT_TRUE(findings.empty());
  EXPECT_EQ(names(trials), Texts{"a_b"});
  EXPECT_TRUE(trials[0].parameters.empty());
}

TEST(Sweep, ReplacesValuesOfTheFile) {
  const auto [trials, problems] = sweep(
      {"seed: {values: [5, 6]}"}, "seed: 1\n" + kShortestConfig + "train: {data_parallel: 1}\n");
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(trials[0].config.train.seed, 5u);
  EXPECT_EQ(trials[1].config.train.seed, 6u);
}

TEST(Sweep, AppendsListedTrials) {
  const std::string list = "trials: [{seed: 7, model.dropout: 0.3}, {train.learning_rate: 1}]";
  const auto [trials, problems] = sweep({"train.learning_rate: {values: [3e-4, 1e-3]}"},
                                        kShortestConfig + "train: {learning_rate: 0.5}\n", {list});
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(names(trials), (Texts{"learning_rate=3e-4", "learning_rate=1e-3", "seed=7,dropout=0.3",
                                  "learning_rate=1"}));
  EXPECT_EQ(trials[2].config.train.seed, 7u);
  EXPECT_EQ(trials[2].config.gpt.dropout, 0.3);
  EXPECT_EQ(trials[2].config.train.learning_rate, 0.5);
  EXPECT_EQ(trials[3].config.train.learning_rate, 1);
  Findings findings;
  const auto again = expand_trials(parse_yaml(to_yaml(trials[1].config)), findings);
  EXPECT_TRUE(findings.empty());
  EXPECT_EQ(names(again), names(trials));

  const auto alone = sweep({}, kShortestConfig + "name: base\n", {list}).trials;
  EXPECT_EQ(names(alone), (Texts{"base", "seed=7,dropout=0.3", "learning_rate=1"}));
}

TEST(Sweep, ChecksListedTrials) {
  const auto problems = [](const std::string& list) {
    return sweep({"seed: {values: [1]}"}, kShortestConfig, {"trials: " + list}).problems;
  };
  const Texts no_list{
      "line 7: sweep.trials: must be a list of mappings of keys to values, such as "
      "[{train.learning_rate: 1e-3}]"};
  EXPECT_EQ(problems("{seed: 1}"), no_list);
  EXPECT_EQ(problems("[{}]"), no_list);
  EXPECT_EQ(
      problems("[{host_memory: 1GiB}]"),
      Texts{"line 7: sweep.trials[0].host_memory: cannot differ: all trials of a run share it"});
  EXPECT_EQ(problems("[{seed: x}]"),
            Texts{"line 7: seed: is 'x', must be an integer from 0 to 18446744073709551615"});
  EXPECT_EQ(problems("[{train.lerning_rate: 1}]"),
            Texts{"line 7: train.lerning_rate: unknown key; did you mean train.learning_rate?"});
}

TEST(Sweep, SweepsAMissingKey) {
  const auto [trials, problems] =
      sweep({"data.path: {values: [a.txt, [b.txt, c.txt]]}"}, "devices: [{memory: 1GiB}]\n");
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(names(trials), (Texts{"path=a.txt", "path=_b.txt,_c.txt_"}));
  EXPECT_EQ(trials[1].config.data.paths, (Texts{"b.txt", "c.txt"}));
  EXPECT_EQ(trials[1].parameters[0].second, "[b.txt, c.txt]");
}

TEST(Sweep, GivesTrialsDistinctNames) {
  const auto [trials, problems] = sweep({"data.path: {values: [a/b, a:b, a b]}"});
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(names(trials), (Texts{"path=a_b", "path=a_b-2", "path=a_b-3"}));
}

TEST(Sweep, UsesWholeKeysIfTheirEndsAreEqual) {
  const auto [trials, problems] =
      sweep({"train.size: {values: [1]}", "model.size: {values: [2]}", "seed: {values: [3]}"});
  EXPECT_EQ(problems.size(), 2u) << "there are no such keys";
  EXPECT_EQ(names(trials), Texts{"train.size=1,model.size=2,seed=3"});
}

TEST(Sweep, RejectsRepeatedValues) {
  const auto [trials, problems] =
      sweep({"seed: {values: [1, 2,", "  1, 3, 2]}", "train.data_parallel: {values: [1]}"});
  EXPECT_EQ(problems,
            (Texts{"line 7: sweep.parameters.seed.values: 1 is listed twice; remove one",
                   "line 7: sweep.parameters.seed.values: 2 is listed twice; remove one"}));
  EXPECT_EQ(trials.size(), 1u);
}

TEST(Sweep, RejectsKeysThatAllTrialsShare) {
  for (const std::string key :
       {"name", "output_dir", "devices", "devices[0].memory", "host_memory", "offload_path",
        "scheduling.policy", "scheduling.sharing", "scheduling.double_buffer", "scheduling",
        "sweep", "sweep.metric.name"}) {
    const auto [trials, problems] = sweep({key + ": {values: [1, 2]}"});
    EXPECT_EQ(problems, Texts{"line 6: sweep.parameters." + key +
                              ": cannot be swept: all trials of a run share it"});
    EXPECT_EQ(trials.size(), 1u) << key;
  }
  EXPECT_EQ(sweep({"scheduling.order: {values: [vn_major, shard_major]}"}).problems, Texts{});
}

TEST(Sweep, RejectsAKeyInsideASweptSection) {
  const auto [trials, problems] = sweep({"model.hidden_size: {values: [64, 128]}",
                                         "model: {values: [{dropout: 0}, {dropout: 0.5}]}"});
  EXPECT_EQ(problems, Texts{"line 6: sweep.parameters.model.hidden_size: is part of model, which "
                            "is swept too; sweep one of them"});
}

TEST(Sweep, SweepsASection) {
  const auto [trials, problems] =
      sweep({"model: {values: [{hidden_size: 64}, {hidden_size: 96, num_hidden_layers: 2}]}"});
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(trials.at(1).config.gpt.hidden_size, 96);
  EXPECT_EQ(trials.at(1).config.gpt.num_hidden_layers, 2);
}

TEST(Sweep, SweepsLanesRulesAndPriorities) {
  const auto [trials, problems] =
      sweep({"train.priority: {values: [1, 5]}", "train.data_parallel: {values: [1, auto]}",
             "train.autoscale: {values: [[], {rule: throughput, threshold: 0.2}]}"});
  EXPECT_EQ(problems, Texts{});
  ASSERT_EQ(trials.size(), 8u);
  EXPECT_EQ(trials[7].config.train.priority, 5);
  EXPECT_EQ(trials[7].config.train.data_parallel, kAutoDataParallel);
  EXPECT_EQ(trials[7].config.train.autoscale.at(0).params.at("threshold"), 0.2);
  EXPECT_TRUE(trials[6].config.train.autoscale.empty());
}

TEST(Sweep, NamesEachUnknownKeyAndBadValueOnce) {
  const auto [trials, problems] =
      sweep({"train.learnig_rate: {values: [1, 2]}", "train.data_parallel: {values: [1, x, y]}",
             "seed: {values: [~]}"});
  EXPECT_EQ(
      problems,
      (Texts{"line 6: train.learnig_rate: unknown key; did you mean train.learning_rate?",
             "line 7: train.data_parallel: is 'x', must be an integer from 1 to 65536, or auto",
             "line 7: train.data_parallel: is 'y', must be an integer from 1 to 65536, or auto",
             "line 8: seed: has no value, must be an integer from 0 to 18446744073709551615"}));
}

TEST(Sweep, NamesTheNewKeyForAnOldOne) {
  EXPECT_EQ(sweep({"train.lanes: {values: [1, 2]}"}).problems,
            Texts{"line 6: train.lanes: was renamed to train.data_parallel"});
}

TEST(Sweep, RejectsAKeyThatIsNoPath) {
  for (const std::string key : {"data.path[0]", "train.", ".seed", "seed.x"}) {
    const auto [trials, problems] =
        sweep({"'" + key + "': {values: [1, 2]}"}, kShortestConfig + "seed: 3\n");
    EXPECT_EQ(problems,
              Texts{"line 7: sweep.parameters." + key + ": is not a key of the configuration"});
  }
}

TEST(Sweep, RejectsTooManyTrials) {
  std::string values = "0";
  for (int i = 1; i < 101; ++i) values += ", " + std::to_string(i);
  const Texts entries{"seed: {values: [" + values + "]}",
                      "train.eval_steps: {values: [" + values + "]}"};
  const auto [trials, problems] = sweep(entries);
  EXPECT_EQ(problems, Texts{"line 5: sweep.parameters: makes more than 10000 trials; list fewer "
                            "values, or write run_cap"});
  EXPECT_EQ(trials.size(), 1u);
  const auto capped = sweep(entries, kShortestConfig, {"run_cap: 103"});
  EXPECT_EQ(capped.problems, Texts{});
  ASSERT_EQ(capped.trials.size(), 103u);
  EXPECT_EQ(capped.trials.back().name, "seed=1,eval_steps=1");
}

TEST(Sweep, StopsAGridAtRunCap) {
  const Texts entries{"train.data_parallel: {values: [1, 2]}", "seed: {values: [1, 2]}"};
  const auto cap = [&](const std::string& n) {
    return names(sweep(entries, kShortestConfig, {"run_cap: " + n}).trials);
  };
  EXPECT_EQ(cap("3"),
            (Texts{"data_parallel=1,seed=1", "data_parallel=1,seed=2", "data_parallel=2,seed=1"}));
  EXPECT_EQ(cap("100").size(), 4u);
  EXPECT_EQ(cap("0").size(), 4u) << "no cap";
}

TEST(Sweep, ListsIntegersAndMultiplesInAGrid) {
  EXPECT_EQ(names(sweep({"seed: {min: 3, max: 5}"}).trials), (Texts{"seed=3", "seed=4", "seed=5"}));
  const auto multiples = [](const std::string& range) {
    return names(sweep({"train.weight_decay: {distribution: q_uniform, " + range + "}"}).trials);
  };
  EXPECT_EQ(multiples("min: 0.1, max: 0.3, q: 0.1"),
            (Texts{"weight_decay=0.1", "weight_decay=0.2", "weight_decay=0.3"}));
  EXPECT_EQ(multiples("min: 0.5, max: 3.5"),
            (Texts{"weight_decay=1", "weight_decay=2", "weight_decay=3"}));
}

TEST(Sweep, SetsAConstantWithoutNamingIt) {
  const auto [trials, problems] =
      sweep({"train.max_steps: {value: 7}", "seed: {values: [1, 2]}"},
            "data: {path: x}\ndevices: [{memory: 1GiB}]\ntrain: {max_steps: 3}\n");
  EXPECT_EQ(problems, Texts{});
  EXPECT_EQ(names(trials), (Texts{"seed=1", "seed=2"}));
  EXPECT_EQ(trials[1].config.train.max_steps, 7);
  EXPECT_EQ(trials[1].parameters.size(), 1u);
  const auto only = sweep({"seed: {value: 4}"}, kShortestConfig + "name: x\n").trials;
  EXPECT_EQ(names(only), Texts{"x"});
  EXPECT_EQ(only[0].config.train.seed, 4u);
}

TEST(Sweep, KeepsOtherErrorsBesideABadSweep) {
  const auto [trials, problems] =
      sweep({"devices: {values: [1]}", "seed: {values: []}"}, kShortestConfig + "sede: 1\n");
  EXPECT_EQ(
      problems,
      (Texts{"line 4: sede: unknown key; did you mean seed?",
             "line 7: sweep.parameters.devices: cannot be swept: all trials of a run share it",
             "line 8: sweep.parameters.seed.values: must be a list of at least one value"}));
}

TEST(Sweep, ReportsErrorsOfAllParameters) {
  const auto [trials, problems] =
      sweep({"seed: {values: []}", "train.data_parallel: {values: [1, x]}",
             "train.learning_rate: {min: 0.1, max: 0.2}", "train.batch_size: {values: [many]}"});
  EXPECT_EQ(
      problems,
      (Texts{"line 6: sweep.parameters.seed.values: must be a list of at least one value",
             "line 7: train.data_parallel: is 'x', must be an integer from 1 to 65536, or auto",
             "line 8: sweep.parameters.train.learning_rate: is continuous (uniform); write "
             "values, or use method: random",
             "line 9: train.batch_size: is 'many', must be an integer from 1 to 16777216"}));
}

}  // namespace
}  // namespace spillway
