#include "runs/folder/prepare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runs/folder/trial_factory.h"
#include "spillway/data_source.h"
#include "tests/support/check/config_text.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway::testing {
namespace {

using Texts = std::vector<std::string>;

/// Of a file of data.
constexpr const char* kConfig =
    "devices: [{{memory: 1MiB}}]\n"
    "model: {{num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1, "
    "max_position_embeddings: 10}}\n"
    "data: {{path: {}, eval_fraction: 0}}\ntrain: {{batch_size: 8, virtual_nodes: 4}}\n";

/// Configurations that read files of bytes, in samples of 10.
class Prepare : public ::testing::Test {
 protected:
  struct Prepared {
    std::vector<Trial> trials;
    Texts problems;
  };

  Prepared prepare(const std::string& data, const std::string& train, const std::string& more = "",
                   const Texts& overrides = {}) {
    const std::string text = fmt::format(
        "devices: [{{memory: 1MiB}}]\n"
        "model: {{num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1, "
        "max_position_embeddings: 10}}\n"
        "data: {{{}}}\ntrain: {{{}}}\n{}",
        data, train, more);
    Findings findings;
    auto trials = read_trials(folder_.write("run.yaml", text), overrides, findings);
    run_configs(trials, OutputFolder(folder_ / "out"), findings);
    return {std::move(trials), messages(findings)};
  }
  /// `num_samples` samples that begin with these letters.
  std::string file(const std::string& name, std::size_t num_samples, char letter) {
    return folder_.write(name, std::string(10 * num_samples + 1, letter));
  }
  std::int64_t steps_of(const std::string& train, const Texts& overrides = {}) {
    const auto [trials, problems] = prepare(
        "path: " + file("train.txt", 100, 'a') + ", eval_fraction: 0", train, "", overrides);
    EXPECT_EQ(problems, Texts{});
    EXPECT_EQ(trials.front().config.num_train_epochs, 0);
    return trials.front().config.train.max_steps;
  }

  TemporaryFolder folder_;
};

TEST_F(Prepare, RoundsEpochsUpToWholeSteps) {
  EXPECT_EQ(steps_of("batch_size: 8, num_train_epochs: 2"), 25);
  EXPECT_EQ(steps_of("batch_size: 16, num_train_epochs: 1"), 7);
  EXPECT_EQ(steps_of("batch_size: 8, num_train_epochs: 0.4"), 5);
  EXPECT_EQ(steps_of("batch_size: 8, num_train_epochs: 0.001"), 1);
  EXPECT_EQ(steps_of("batch_size: 8"), TrainConfig().max_steps);
}

TEST_F(Prepare, ReplacesStepsByEpochsOnAnOverride) {
  EXPECT_EQ(steps_of("batch_size: 8, max_steps: 3", {"train.num_train_epochs=2"}), 25);
  EXPECT_EQ(steps_of("batch_size: 8, num_train_epochs: 2", {"train.max_steps=3"}), 3);
}

TEST_F(Prepare, RefusesStepsBesideEpochs) {
  const auto path = "path: " + file("train.txt", 100, 'a');
  EXPECT_EQ(prepare(path, "max_steps: 3, num_train_epochs: 1").problems,
            Texts{"line 4: train.num_train_epochs: cannot be used with train.max_steps; remove one "
                  "of them"});
  EXPECT_EQ(prepare(path, "num_train_epochs: 0").problems,
            Texts{"line 4: train.num_train_epochs: is '0', must be a number above 0"});
}

/// The configuration of a run has the steps; or the epochs, where one number would be wrong.
TEST_F(Prepare, HasTheSameStepsFromTheResolvedConfiguration) {
  const std::string data = "path: " + file("train.txt", 100, 'a') + ", eval_fraction: 0";
  for (const std::string values :
       {"train.learning_rate: {values: [1, 2]}", "train.batch_size: {values: [8, 16]}",
        "train.num_train_epochs: {values: [1, 3]}"}) {
    const bool is_swept = values.starts_with("train.num_train_epochs");
    const auto [trials, problems] = prepare(data, is_swept ? "" : "num_train_epochs: 2",
                                            "sweep: {parameters: {" + values + "}}\n");
    EXPECT_EQ(problems, Texts{});
    const std::string text = to_yaml(trials.front().config);
    const bool are_alike = values.starts_with("train.learning_rate");
    EXPECT_EQ(text.find("max_steps: ") != std::string::npos, are_alike) << text;
    Findings findings;
    const auto again = read_trials(folder_.write("again.yaml", text), {}, findings);
    EXPECT_EQ(messages(findings), Texts{});
    for (std::size_t t = 0; t < 2; ++t) {
      EXPECT_EQ(again[t].config.train.max_steps, trials[t].config.train.max_steps);
    }
  }
}

TEST_F(Prepare, OpensDataOnceForStepsAndTrials) {
  const std::string text = fmt::format(kConfig, file("train.txt", 100, 'a'));
  Findings findings;
  const auto trials =
      read_trials(folder_.write("run.yaml", text), {"train.num_train_epochs=1"}, findings);
  std::filesystem::remove(folder_ / "train.txt");
  const auto configs = run_configs(trials, OutputFolder(folder_ / "out"), findings);
  EXPECT_EQ(messages(findings), Texts{});
  EXPECT_EQ(configs.at(0).data->train->num_samples(), 100u);
}

TEST_F(Prepare, DecidesAboutSharingWithoutOpeningDataAgain) {
  const auto submitted = [&](const std::string& setting) {
    const std::string text = fmt::format(kConfig, file("train.txt", 100, 'a'));
    Findings findings;
    const auto trials = read_trials(folder_.write("run.yaml", text),
                                    {"devices=[{memory: 1MiB}, {memory: 1MiB}]",
                                     "sweep.parameters.seed.values=[1, 2]", setting},
                                    findings);
    const auto configs = run_configs(trials, OutputFolder(folder_ / "out"), findings);
    std::filesystem::remove(folder_ / "train.txt");
    SessionConfig session = trials.front().config.session;
    session.estimate = true;
    return submit_new_run(trials, configs, session, host_memory(), findings);
  };
  const auto sharing = [](const SubmittedRun& run) {
    return run.trials.back().config.session.sharing;
  };
  const SubmittedRun shared = submitted("seed=0");
  EXPECT_EQ(sharing(shared), SharingKind::fill);
  EXPECT_EQ(sharing(submitted("scheduling.sharing=none")), SharingKind::none);
  EXPECT_EQ(sharing(submitted("train.max_data_parallel=2")), SharingKind::none);
  const Bytes home = shared.session->plan(JobId(0)).home_bytes;
  EXPECT_EQ(sharing(submitted("host_memory=" + std::to_string(2 * home))), SharingKind::fill);
  const SubmittedRun tight = submitted("host_memory=" + std::to_string(2 * home - 1));
  EXPECT_EQ(sharing(tight), SharingKind::none);
  EXPECT_LT(tight.session->plan(JobId(0)).home_bytes, home) << "planned again, for one device";
}

TEST_F(Prepare, ChecksRungsAgainstTheStepsOfTheEpochs) {
  const auto problems_of = [&](int min_iter) {
    return prepare("path: " + file("train.txt", 100, 'a') + ", eval_fraction: 0",
                   "batch_size: 8, num_train_epochs: 1",
                   fmt::format("sweep:\n  metric: {{name: final_loss}}\n"
                               "  early_terminate: {{type: hyperband, min_iter: {}}}\n"
                               "  parameters: {{seed: {{values: [1, 2]}}}}\n",
                               min_iter))
        .problems;
  };
  EXPECT_EQ(problems_of(12), Texts{});
  ASSERT_EQ(problems_of(13).size(), 1u);
  EXPECT_NE(problems_of(13)[0].find("no trial takes more than 13 steps"), std::string::npos);
}

TEST_F(Prepare, OpensFilesOfTheirOwnForEvaluation) {
  const auto train = file("train.txt", 100, 'a'), eval = file("eval.txt", 3, 'b');
  const auto [trials, problems] = prepare("path: " + train + ", eval_path: " + eval, "");
  EXPECT_EQ(problems, Texts{});
  Findings findings;
  const auto data = TrialFactory().make(trials.front(), findings).data;
  EXPECT_EQ(data->train->num_samples(), 100u);
  ASSERT_EQ(data->eval->num_samples(), 3u);
  std::vector<std::int64_t> sample(11);
  data->eval->read(2, std::as_writable_bytes(std::span(sample)));
  EXPECT_EQ(sample, std::vector<std::int64_t>(11, 'b'));
  const std::string text = to_yaml(trials.front().config);
  EXPECT_NE(text.find("eval_path: [" + eval + "]\n"), std::string::npos) << text;
  EXPECT_NE(text.find("eval_fraction: 0\n"), std::string::npos) << text;
}

TEST_F(Prepare, NamesTheKeyOfEvaluationFiles) {
  const auto path = "path: " + file("train.txt", 100, 'a');
  const auto missing = prepare(path + ", eval_path: " + (folder_ / "nowhere"), "").problems;
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_TRUE(missing[0].starts_with("line 3: data.eval_path: '" + (folder_ / "nowhere")))
      << missing[0];
  EXPECT_EQ(prepare(path + ", eval_fraction: 0.1, eval_path: x", "").problems[0],
            "line 3: data.eval_fraction: cannot be used with data.eval_path; remove one of them");
}

}  // namespace
}  // namespace spillway::testing
