#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "spillway/data_source.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/wrapped_model.h"
#include "tests/support/run/training_run.h"
#include "trainer/profile/profile_cache.h"

/// A trial that fails does not affect others, and reports its reason.
namespace spillway::testing {
namespace {

constexpr std::size_t kVictim = 1;

/// Three trials that spill on both devices; the one in the middle is modified.
void expect_alone(const std::function<TrialConfig(const TrialConfig&)>& change,
                  const std::string& reason) {
  std::vector<TrialConfig> trials(3, tiny_trial());
  for (std::size_t t = 0; t < trials.size(); ++t) trials[t].train.seed = 11 + t;
  const SessionConfig config = session_of(2, smallest_budget(tiny_trial()) * 5 / 4);
  static const RunResult healthy = train(config, trials);
  trials[kVictim] = change(trials[kVictim]);
  const RunResult result = train(config, trials);
  EXPECT_EQ(result.trials[kVictim].state, TrialState::failed);
  EXPECT_NE(result.trials[kVictim].reason.find(reason), std::string::npos)
      << result.trials[kVictim].reason;
  EXPECT_LT(result.trials[kVictim].steps, 20);
  for (std::size_t t = 0; t < trials.size(); ++t) {
    if (t != kVictim) expect_same_bits(result.trials[t], healthy.trials[t]);
  }
  expect_within_budgets(result);
}

TEST(Failure, IsolatesALayerThatThrows) {
  expect_alone(
      [](const TrialConfig& trial) {
        return with_before(trial, [](LayerContext& context) {
          if (context.random.step == 5 && context.random.vn == 3)
            throw std::runtime_error("the layer is broken");
        });
      },
      "layer embed: the layer is broken");
}

/// Measured under other circumstances that the cache does not distinguish.
TEST(Failure, IsolatesALayerThatNeedsMoreThanMeasured) {
  const TemporaryFolder folder;
  SessionConfig config = session_of(1, kAmple);
  config.pilot_cache = folder / "pilot.json";
  EXPECT_EQ(train(config, tiny_trial()).trials[0].state, TrialState::done);
  const auto json = nlohmann::json::parse(folder.read("pilot.json"));
  ProfileCache cache(config.pilot_cache, this_build_and_kernels, [] { return 1.0; });
  for (const auto& [key, entry] : json["builds"][this_build_and_kernels()]["layers"].items()) {
    LayerProfile profile = cache.find(key).value();
    profile.forward_peak /= 8;
    cache.add(key, profile, {});
  }
  cache.save();
  const TrialResult result = train(config, tiny_trial()).trials[0];
  EXPECT_EQ(result.state, TrialState::failed);
  EXPECT_EQ(result.reason.find("layer"), 0u) << result.reason;
  for (const std::string& part :
       {std::string("more memory than measured (device memory: "),
        "; delete '" + config.pilot_cache.string() + "', start the trial again"}) {
    EXPECT_NE(result.reason.find(part), std::string::npos) << result.reason;
  }
}

/// One sentence, without LibTorch's stack trace.
TEST(Failure, ReportsLibTorchErrors) {
  const RunResult result =
      train(session_of(1, kAmple), with_before(tiny_trial(), [](LayerContext& context) {
              TORCH_CHECK(context.random.step < 5, "mine");
            }));
  EXPECT_EQ(result.trials[0].state, TrialState::failed);
  EXPECT_EQ(result.trials[0].reason, "layer embed: mine");
}

/// The same trial, with a token outside the vocabulary in one sample.
class WithAStranger final : public DataSource {
 public:
  static constexpr std::uint64_t kSample = 123;

  explicit WithAStranger(std::shared_ptr<const DataSource> all) : all_(std::move(all)) {}
  std::uint64_t num_samples() const override { return all_->num_samples(); }
  std::int64_t sample_elements() const override { return all_->sample_elements(); }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    all_->read(index, row);
    if (index == kSample) values_of<std::int64_t>(row)[4] = tiny_gpt().vocab_size;
  }

 private:
  std::shared_ptr<const DataSource> all_;
};

constexpr const char* kStranger =
    "sample 123 for training has 64 as value 4, where the model takes whole numbers from 0 to 63";

TrialConfig with_a_stranger(TrialConfig trial) {
  auto data = std::make_shared<DataSplit>(*trial.data);
  data->train = std::make_shared<WithAStranger>(data->train);
  trial.data = std::move(data);
  return trial;
}

/// Before any device sees it: a GPU would be lost.
TEST(Failure, NamesASampleThatTheModelRefuses) { expect_alone(with_a_stranger, kStranger); }

/// Trials that read other files are unaffected: no signal, same bits.
TEST(Failure, IsolatesChangedData) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += static_cast<char>(i * i % 61);
  const auto from_file = [&](const TrialConfig& trial, const std::string& name) {
    TrialConfig changed = trial;
    const std::string path = folder.write(name, text);
    std::filesystem::last_write_time(path, {});
    changed.data = std::make_shared<DataSplit>(open_bytes({path}, 16, 0));
    return changed;
  };
  const auto changed_by = [&](const std::function<void(const std::string& path)>& change) {
    return [&, change](const TrialConfig& trial) {
      return with_before(from_file(trial, "changed"), [&, change](LayerContext& context) {
        if (context.random.step == 5 && context.random.vn == 3) change(folder / "changed");
      });
    };
  };
  const std::string name = "data file '" + (folder / "changed") + "' was ";
  expect_alone(
      changed_by([](const std::string& path) { std::filesystem::resize_file(path, 0); }),
      name + "changed during the run: it had 20000 bytes, now it has 0 bytes; put it back");
  expect_alone(changed_by([](const std::string& path) {
                 std::fstream(path, std::ios::in | std::ios::out) << "other";
               }),
               name + "written to during the run; put it back");
  // Negative control: it trains on the file that it opened, wherever that is now.
  const RunResult whole = train(session_of(1, kAmple), from_file(tiny_trial(), "whole"));
  const RunResult removed = train(session_of(1, kAmple), changed_by([](const std::string& path) {
                                    std::filesystem::remove(path);
                                  })(tiny_trial()));
  expect_same_bits(removed.trials[0], whole.trials[0]);
}

TEST(Failure, RefusesDataThatIsReadAhead) {
  const TemporaryFolder folder;
  TrialConfig trial = with_a_stranger(tiny_trial());
  trial.checkpoint.folder = folder.path() / "checkpoints";
  Session session(session_of(1, kAmple));
  const auto refusal = thrown<ConfigError>([&] { session.submit(trial); });
  EXPECT_EQ(refusal.problem.find(kStranger), 0u) << refusal.problem;
}

/// In both parts, and before anything is read.
TEST(Failure, RefusesDataOfAnotherShape) {
  const TemporaryFolder folder;
  Session session(session_of(1, kAmple));
  for (const bool evaluation : {false, true}) {
    TrialConfig trial = tiny_trial();
    trial.checkpoint.folder = folder.path() / "checkpoints";
    auto data = std::make_shared<DataSplit>(*trial.data);
    (evaluation ? data->eval : data->train) = std::make_shared<RuleSource>(500, 3, 0);
    trial.data = std::move(data);
    EXPECT_EQ(thrown<ConfigError>([&] { session.submit(trial); }).problem,
              "samples have 3 int64 values, model gpt expects 17 int64 values");
  }
}

TEST(Failure, RefusesATrialWithoutModelOrData) {
  Session session(session_of(1, kAmple));
  TrialConfig trial = tiny_trial();
  trial.data = std::make_shared<DataSplit>();
  EXPECT_EQ(thrown<ConfigError>([&] { session.submit(trial); }).field, "data");
  trial.data = nullptr;
  EXPECT_EQ(thrown<ConfigError>([&] { session.submit(trial); }).field, "data");
  trial.model = nullptr;
  EXPECT_EQ(thrown<ConfigError>([&] { session.submit(trial); }).field, "model");
}

std::string reason_of_failure(const TrialConfig& trial) {
  const RunResult result = train(session_of(1, kAmple), trial);
  EXPECT_EQ(result.trials[0].state, TrialState::failed);
  return result.trials[0].reason;
}

TEST(Failure, NamesLikelyCausesOfANonFiniteLoss) {
  TrialConfig fast = tiny_trial();
  fast.train.learning_rate = 9e5;
  fast.train.max_grad_norm = 0;
  const std::string smaller_rate = "try a smaller train.learning_rate or train.max_grad_norm";
  const std::string of_steps = reason_of_failure(fast);
  EXPECT_NE(of_steps.find("not finite"), std::string::npos) << of_steps;
  EXPECT_TRUE(of_steps.ends_with(smaller_rate)) << of_steps;

  GptConfig large = tiny_gpt();
  large.initializer_range = 1e300;
  const std::string of_start = reason_of_failure(tiny_trial("large", large));
  EXPECT_TRUE(of_start.starts_with("step 1: ")) << of_start;
  EXPECT_TRUE(
      of_start.ends_with("have a standard deviation of up to 1e+300: try a smaller "
                         "model.initializer_range"))
      << of_start;
  EXPECT_EQ(of_start.find("learning_rate"), std::string::npos) << of_start;
}

/// More activations than the pilot measured: the device's budget is kept all the same.
TEST(Failure, ReportsAnOpThatExceedsItsPlannedMemory) {
  expect_alone(
      [](const TrialConfig& trial) {
        return with_before(trial, [](LayerContext& context) {
          if (context.random.step == 5) at::empty({1 << 20});
        });
      },
      "device memory");
}

TEST(Failure, ReportsStoppedTrials) {
  Session session(session_of(1, kAmple));
  TrialConfig trial = tiny_trial();
  trial.train.max_steps = 1'000'000;
  session.submit(trial);
  session.stop();
  session.run();
  EXPECT_EQ(session.result().trials[0].state, TrialState::stopped);
  EXPECT_EQ(session.result().trials[0].weights_xxh3, "");
}

}  // namespace
}  // namespace spillway::testing
