#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/commands/results_command.h"
#include "apps/commands/train_command.h"
#include "apps/commands/trial_commands.h"
#include "apps/commands/verify_command.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/measured_costs.h"
#include "tests/support/run/small_sweep.h"

namespace spillway::testing {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

/// Runs that get more trials and more steps, on two devices that hold no trial.
class GrowRun : public ::testing::Test {
 protected:
  Json trained(const std::string& name, Texts overrides) {
    overrides.push_back("output_dir=" + folder_ / name);
    TrainOptions options{.config_file = config_,
                         .overrides = std::move(overrides),
                         .json = true,
                         .pilot_cache = measured_costs()};
    return document([&] { return train(options, out_, log_, requests_); });
  }
  Json resumed(const std::string& name, const Texts& overrides = {}) {
    ResumeOptions options{.folder = folder_ / name,
                          .overrides = overrides,
                          .json = true,
                          .pilot_cache = measured_costs()};
    return document([&] { return resume(options, out_, log_, requests_); });
  }
  template <typename Command>
  Json document(const Command& command) {
    out_.str("");
    log_.str("");
    code_ = command();
    return Json::parse(out_.str());
  }
  std::string refusal(const std::string& name, const Texts& overrides) {
    const std::string config = folder_.read(name + "/config.yaml"),
                      log = folder_.read(name + "/events.jsonl");
    const auto error = thrown<ConfigError>([&] { resumed(name, overrides); });
    EXPECT_EQ(folder_.read(name + "/config.yaml"), config);
    EXPECT_EQ(folder_.read(name + "/events.jsonl"), log);
    return error.what();
  }
  std::string weights(const std::string& name, const std::string& trial) const {
    return folder_.read(name + "/trials/" + trial + "/weights.safetensors");
  }
  /// Without times.
  std::vector<std::string> metrics(const std::string& name, const std::string& trial) const {
    std::istringstream text(folder_.read(name + "/trials/" + trial + "/metrics.csv"));
    std::vector<std::string> rows;
    for (std::string row; std::getline(text, row);) {
      std::istringstream cells(row);
      std::string kept, cell;
      for (int i = 0; std::getline(cells, cell, ','); ++i) {
        if (i != 4 && i != 5) kept += cell + ",";  // tokens_per_s, time_s
      }
      rows.push_back(kept);
    }
    return rows;
  }
  /// The bytes of each file, by path.
  std::map<std::string, std::string> files(const std::string& name) const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / name)) {
      const std::string path = std::filesystem::relative(entry.path(), folder_.path());
      if (entry.is_regular_file()) all[path] = folder_.read(path);
    }
    return all;
  }
  /// Everything that is written agrees.
  void expect_sound(const std::string& name) {
    std::ostringstream shown;
    EXPECT_EQ(verify({.folder = folder_ / name}, shown), kDone) << shown.str();
    EXPECT_EQ(results({.folder = folder_ / name}, shown, shown), kDone) << shown.str();
  }

  TemporaryFolder folder_;
  const std::string config_ = write_small_sweep(folder_);
  std::ostringstream out_, log_;
  Requests requests_;
  ExitCode code_ = kDone;
};

Texts operator+(Texts all, const Texts& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Texts names_of(const Json& document) {
  Texts names;
  for (const Json& trial : document["trials"]) names.push_back(trial["name"]);
  return names;
}

std::map<std::string, std::string> hashes(const Json& document) {
  std::map<std::string, std::string> found;
  for (const Json& trial : document["trials"]) {
    EXPECT_EQ(trial["state"], "done") << trial;
    found[trial["name"]] = trial["weights_xxh3"];
  }
  return found;
}

const std::string kRandom =
    "sweep={method: random, run_cap: 2, parameters: {train.learning_rate: {min: 0.001, max: "
    "0.1}}}";

TEST_F(GrowRun, AddsDrawsToARandomSweep) {
  const Json few = trained("out", {kRandom});
  ASSERT_EQ(code_, kDone);
  const Json many = resumed("out", {"sweep.run_cap=4"});
  ASSERT_EQ(code_, kDone) << log_.str();
  ASSERT_EQ(many["trials"].size(), 4u);
  for (std::size_t t = 0; t < 2; ++t) {
    EXPECT_EQ(many["trials"][t]["name"], few["trials"][t]["name"]);
    EXPECT_EQ(many["trials"][t]["weights_xxh3"], few["trials"][t]["weights_xxh3"]);
  }
  EXPECT_EQ(hashes(many), hashes(trained("whole", {kRandom, "sweep.run_cap=4"})));
  expect_sound("out");
  EXPECT_NE(folder_.read("out/config.yaml").find("run_cap: 4\n"), std::string::npos);
  // Without overrides it stays as it is.
  EXPECT_EQ(names_of(resumed("out")), names_of(many));
  EXPECT_NE(log_.str().find("all trials of this run have ended"), std::string::npos);
  EXPECT_EQ(refusal("out", {"sweep.run_cap=3"}),
            "sweep.run_cap: is 3, but the run has 4 trials; write at least 4");
}

TEST_F(GrowRun, AddsValuesToAGridAndKeepsItsTrials) {
  const std::string values = "sweep.parameters.train.learning_rate.values=";
  const Texts before = names_of(trained("out", {}));
  const Json grown = resumed("out", {values + "[1e-4, 1e-3, 1e-2]"});
  ASSERT_EQ(code_, kDone) << log_.str();
  Texts expected = before;
  expected.insert(expected.end(), {"learning_rate=1e-4,seed=1", "learning_rate=1e-4,seed=2"});
  EXPECT_EQ(names_of(grown), expected);
  EXPECT_EQ(hashes(grown), hashes(trained("whole", {values + "[1e-4, 1e-3, 1e-2]"})));
  for (const std::string& trial : expected) {
    EXPECT_EQ(metrics("out", trial), metrics("whole", trial));
    EXPECT_EQ(weights("out", trial), weights("whole", trial));
  }
  expect_sound("out");
  EXPECT_NE(refusal("out", {values + "[1e-3, 1e-2]"})
                .find("sweep.parameters.train.learning_rate: no longer gives 1e-4"),
            std::string::npos);
  EXPECT_NE(refusal("out", {"sweep.method=random", "sweep.run_cap=7"}).find("sweep"),
            std::string::npos);
}

/// Nobody trains the run: a call that is refused does not open it.
TEST_F(GrowRun, RefusesAWrongCloneBeforeItWrites) {
  trained("out", {"checkpoint.keep=1"});
  trained("none", {"checkpoint.keep=0"});
  const auto refused = [&](const std::string& name, const Texts& values) {
    const std::string log = folder_.read(name + "/events.jsonl");
    const ResumeOptions options{.folder = folder_ / name, .overrides = values, .trial = "t0"};
    const std::string problem =
        thrown<Error>([&] { clone(options, out_, log_, requests_); }).what();
    EXPECT_EQ(folder_.read(name + "/events.jsonl"), log) << problem;
    return problem;
  };
  EXPECT_NE(refused("out", {"train.max_steps=3"}).find("train.max_steps: is 3, but"),
            std::string::npos);
  EXPECT_NE(refused("out", {"train.max_steps=9"}).find("train.lr_scheduler_extend"),
            std::string::npos)
      << "its schedule has an end";
  EXPECT_NE(refused("none", {}).find("checkpoint.keep: is 0"), std::string::npos);
}

/// In one go with trials that have not ended, and again after an interruption.
TEST_F(GrowRun, GrowsAnInterruptedSweep) {
  requests_.stop = true;
  trained("out", {kRandom});
  ASSERT_EQ(code_, kInterrupted);
  resumed("out", {"sweep.run_cap=3"});
  ASSERT_EQ(code_, kInterrupted);
  requests_.stop = false;
  const Json grown = resumed("out");
  ASSERT_EQ(code_, kDone) << log_.str();
  EXPECT_EQ(hashes(grown), hashes(trained("whole", {kRandom, "sweep.run_cap=3"})));
  expect_sound("out");
}

TEST_F(GrowRun, GrowsByATrainCommandThatMayResume) {
  trained("out", {kRandom});
  const Json grown = trained("out", {kRandom, "sweep.run_cap=3", "resume=auto"});
  ASSERT_EQ(code_, kDone);
  EXPECT_EQ(names_of(grown).size(), 3u);
  EXPECT_EQ(names_of(resumed("out")), names_of(grown));
}

TEST_F(GrowRun, KeepsAnAddedTrialWhateverResumesTheRun) {
  const Texts two{"sweep.parameters={seed: {values: [1, 2]}}"};
  trained("out", two);
  ResumeOptions options{.folder = folder_ / "out", .json = true};
  options.overrides = {"seed=7", "train.learning_rate=0.01"};
  const Json grown = document([&] { return add(options, out_, log_, requests_); });
  ASSERT_EQ(code_, kDone) << log_.str();
  const Texts expected{"seed=1", "seed=2", "seed=7,learning_rate=0.01"};
  EXPECT_EQ(names_of(grown), expected);
  EXPECT_EQ(hashes(grown),
            hashes(trained("whole", two + Texts{"sweep.trials=[{seed: 7, train.learning_rate: "
                                                "0.01}]"})));
  expect_sound("out");
  EXPECT_EQ(names_of(resumed("out")), expected);
  EXPECT_EQ(names_of(trained("out", two + Texts{"resume=auto"})), expected);
}

TEST_F(GrowRun, LeavesAllFilesAloneIfAnAddIsRefused) {
  const Texts two{"sweep.parameters={seed: {values: [1, 2]}}"};
  trained("out", two);
  ResumeOptions options{.folder = folder_ / "out", .json = true};
  const auto add_to = [&](const Texts& values) {
    options.overrides = values;
    return document([&] { return add(options, out_, log_, requests_); });
  };
  const auto refused = [&](const Texts& values) {
    const auto before = files("out");
    const std::string problem = thrown<Error>([&] { add_to(values); }).what();
    EXPECT_EQ(files("out"), before) << problem;
    return problem;
  };
  add_to({"seed=7"});
  EXPECT_EQ(refused({"train.learning_rate=much"}),
            "train.learning_rate: is 'much', must be a number of at least 0 and below 1000000");
  EXPECT_NE(refused({"model.hidden_size=1536"}).find("does not fit"), std::string::npos);
  EXPECT_NE(refused({"seed=9", "sweep.run_cap=9"}).find("sweep"), std::string::npos);
  const Json grown = add_to({"seed=8"});
  EXPECT_EQ(names_of(grown), (Texts{"seed=1", "seed=2", "seed=7", "seed=8"}));
  EXPECT_EQ(hashes(grown),
            hashes(trained("whole", {"sweep.parameters={seed: {values: [1, 2, 7, 8]}}"})));
  expect_sound("out");
}

/// Ended trials count at the rungs, so the same trials survive as if all had been there.
TEST_F(GrowRun, ComparesNewTrialsWithThoseThatHaveEnded) {
  const Texts early{kRandom, "sweep.early_terminate={type: hyperband, min_iter: 2, eta: 2}"};
  trained("out", early);
  const Json grown = resumed("out", {"sweep.run_cap=5"});
  ASSERT_EQ(code_, kDone) << log_.str();
  int compared = 0;
  for (std::size_t t = 2; t < 5; ++t) {
    const Json& trial = grown["trials"][t];
    const std::string reason = trial.value("reason", "");
    if (!reason.starts_with("at step 2 ")) continue;
    EXPECT_NE(reason.find(" of 5 by "), std::string::npos) << trial;
    ++compared;
  }
  EXPECT_GE(compared, 1);
  expect_sound("out");
}

TEST_F(GrowRun, ChangesNothingForTrialsThatDoNotFit) {
  trained("out", {"sweep={parameters: {model.hidden_size: {values: [48]}}}"});
  const std::string config = folder_.read("out/config.yaml"),
                    log = folder_.read("out/events.jsonl");
  EXPECT_THROW(resumed("out", {"sweep.parameters.model.hidden_size.values=[48, 24, 1536]"}),
               DoesNotFit);
  EXPECT_EQ(folder_.read("out/config.yaml"), config);
  EXPECT_EQ(folder_.read("out/events.jsonl"), log);
  resumed("out");
  EXPECT_NE(log_.str().find("all trials of this run have ended"), std::string::npos);
  EXPECT_EQ(resumed("out", {"sweep.parameters.model.hidden_size.values=[48, 24]"})["trials"].size(),
            2u);
}

const Texts kConstant{"sweep.parameters={seed: {values: [1, 2]}}",
                      "train.lr_scheduler_type=constant", "train.eval_steps=4"};

/// Weights and metrics are those of trials that had all steps from the start.
TEST_F(GrowRun, ContinuesAConstantScheduleExactly) {
  trained("out", kConstant);
  resumed("out", {"train.max_steps=7"});
  ASSERT_EQ(code_, kDone) << log_.str();
  const Json longer = resumed("out", {"train.max_steps=9", "sweep.parameters.seed.values=[1,2,3]"});
  ASSERT_EQ(code_, kDone) << log_.str();
  const Json whole = trained(
      "whole", kConstant + Texts{"train.max_steps=9", "sweep.parameters.seed.values=[1,2,3]"});
  EXPECT_EQ(hashes(longer), hashes(whole));
  for (const char* trial : {"seed=1", "seed=2", "seed=3"}) {
    EXPECT_EQ(metrics("out", trial), metrics("whole", trial));
    EXPECT_EQ(weights("out", trial), weights("whole", trial));
  }
  expect_sound("out");
  EXPECT_NE(folder_.read("out/config.yaml").find("extended_from: [5, 7]\n"), std::string::npos);
  resumed("out");
  EXPECT_NE(log_.str().find("all trials of this run have ended"), std::string::npos);
  EXPECT_EQ(refusal("out", {"train.max_steps=8"}),
            "train.max_steps: is 8, but the run trains 9 steps; write at least 9");
}

TEST_F(GrowRun, ExtendsAScheduleWithAnEndAsTheUserSays) {
  const Texts one{"sweep.parameters={seed: {values: [1]}}"};
  trained("restart", one);
  trained("stretch", one);
  EXPECT_NE(refusal("stretch", {"train.max_steps=9"})
                .find("train.lr_scheduler_extend: is none, but train.lr_scheduler_type cosine has "
                      "no learning rate after its end at step 5; write restart or stretch"),
            std::string::npos);
  const Json stretched =
      resumed("stretch", {"train.max_steps=9", "train.lr_scheduler_extend=stretch"});
  ASSERT_EQ(code_, kDone) << log_.str();
  const Json restarted =
      resumed("restart", {"train.max_steps=9", "train.lr_scheduler_extend=restart"});
  ASSERT_EQ(code_, kDone) << log_.str();
  const Json whole = trained("whole", one + Texts{"train.max_steps=9"});
  EXPECT_NE(hashes(stretched), hashes(whole)) << "the control";
  EXPECT_NE(hashes(restarted), hashes(whole));
  EXPECT_NE(hashes(restarted), hashes(stretched));
  const Texts rates = metrics("stretch", "seed=1"), all = metrics("whole", "seed=1");
  ASSERT_EQ(rates.size(), 10u);
  const auto rate = [](const std::string& row) {  // the third cell
    const auto begin = row.find(',', row.find(',') + 1);
    return row.substr(begin, row.find(',', begin + 1) - begin);
  };
  EXPECT_NE(rate(rates[5]), rate(all[5]));
  for (std::size_t step = 6; step <= 9; ++step) EXPECT_EQ(rate(rates[step]), rate(all[step]));
  // The configuration has all that makes these bits.
  const std::string config = folder_ / "stretch/config.yaml";
  std::ostringstream out;
  train({.config_file = config, .overrides = {"output_dir=" + folder_ / "again"}, .json = true},
        out, log_, requests_);
  EXPECT_EQ(hashes(Json::parse(out.str())), hashes(stretched));
  EXPECT_NE(refusal("stretch", {"train.max_steps=12", "train.lr_scheduler_extend=restart"})
                .find("train.lr_scheduler_extend: was stretch, is restart"),
            std::string::npos);
}

TEST_F(GrowRun, KeepsTheBitsOfAnInterruptedExtension) {
  trained("out", kConstant);
  requests_.stop = true;
  resumed("out", {"train.max_steps=9"});
  ASSERT_EQ(code_, kInterrupted);
  requests_.stop = false;
  const Json longer = resumed("out");
  ASSERT_EQ(code_, kDone) << log_.str();
  EXPECT_EQ(hashes(longer), hashes(trained("whole", kConstant + Texts{"train.max_steps=9"})));
}

TEST_F(GrowRun, RestartsATrialWithoutACheckpoint) {
  const Texts none = kConstant + Texts{"checkpoint.keep=0"};
  trained("out", none);
  const Json longer = resumed("out", {"train.max_steps=9"});
  ASSERT_EQ(code_, kDone);
  EXPECT_NE(log_.str().find("trial seed=1: it has no checkpoint and trains from the beginning\n"),
            std::string::npos)
      << log_.str();
  EXPECT_EQ(hashes(longer), hashes(trained("whole", none + Texts{"train.max_steps=9"})));
}

/// Trials that were stopped early stay so; the survivor goes on.
TEST_F(GrowRun, ExtendsTheSurvivorsOfEarlyStopping) {
  trained("out", {"train.lr_scheduler_type=constant",
                  "sweep.early_terminate={type: hyperband, min_iter: 2, eta: 4}"});
  const Json longer = resumed("out", {"train.max_steps=12"});
  ASSERT_EQ(code_, kDone) << log_.str();
  std::map<std::string, int> ends;
  for (const Json& trial : longer["trials"]) {
    ends[trial["state"].get<std::string>() + " " + std::to_string(trial["steps"].get<int>())]++;
  }
  EXPECT_EQ(ends, (std::map<std::string, int>{{"done 12", 1}, {"stopped early 2", 3}}));
  expect_sound("out");
}

}  // namespace
}  // namespace spillway::testing
