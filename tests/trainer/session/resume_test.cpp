#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/os/file_system.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/small_cnn.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/models/small_rnn.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"
#include "trainer/checkpoint/checkpoint_store.h"

namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

using Kind = SessionEvent::Kind;

TrialConfig checkpointed(TrialConfig trial, const fs::path& folder, std::int64_t every_steps = 0) {
  trial.checkpoint = {.folder = folder, .every_steps = every_steps, .resume = true};
  return trial;
}

/// A session of one trial, and its messages.
struct Told {
  TrialResult result;
  std::vector<SessionEvent> events;

  std::vector<SessionEvent> all(Kind kind) const {
    std::vector<SessionEvent> found;
    for (const SessionEvent& event : events) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }
};

/// Stops once it has committed `stop_at` steps, unless that is 0.
Told told(const SessionConfig& config, const TrialConfig& trial, std::int64_t stop_at = 0) {
  WatchedSession run(config);
  run.submit_in_lockstep(trial);
  run.run([&](const SessionEvent& event) {
    if (stop_at > 0 && event.kind == Kind::step && event.step >= stop_at) run.session.stop();
  });
  return {run.result.trials[0], run.events};
}

struct Case {
  std::string name;
  TrialConfig (*trial)();
};
void PrintTo(const Case& each, std::ostream* out) { *out << each.name; }

TrialConfig gpt() { return tiny_trial(); }
TrialConfig sgd() {
  TrialConfig trial = tiny_trial();
  trial.train.optimizer = OptimizerKind::sgd;
  return trial;
}
TrialConfig resnet() { return resnet_trial(); }
TrialConfig cnn_in_pieces() {
  return cnn_trial(small_cnn(/*drop=*/0.1, {.channels = 2, .height = 3}));
}

TrialConfig rnn() { return rnn_trial(small_rnn(RnnPreset::nmt, /*dropout=*/0.1, /*pieces=*/2)); }

class Resume : public ::testing::TestWithParam<Case> {
 protected:
  TrialConfig trial() const { return GetParam().trial(); }
};

/// Stops at random steps, each time on other devices and budgets.
TEST_P(Resume, GivesTheSameBitsAfterAnyStops) {
  const TrialResult whole = told(session_of(1, kAmple), trial()).result;
  const Bytes least = smallest_budget(trial());
  std::mt19937 random(5);
  for (const int stops : {1, 2, 5, 20}) {
    const TemporaryFolder folder;
    TrialResult last;
    int stopped = 0;
    for (std::int64_t from = 0; last.state != TrialState::done;) {
      const auto devices = static_cast<int>(1 + random() % 2);
      const Bytes budget = random() % 2 == 0 ? least : kAmple;
      TrialConfig next = checkpointed(trial(), folder / "gpt", random() % 2 == 0 ? 3 : 0);
      next.train.data_parallel = devices;
      const auto left = static_cast<int>(whole.steps - from);
      const std::int64_t stop_at =
          stopped < stops && left > 1
              ? from + 1 + static_cast<std::int64_t>(random()) % (left / 2 + 1)
              : 0;
      const Told part = told(session_of(devices, budget), next, stop_at);
      last = part.result;
      const auto resumed = part.all(Kind::resumed);
      ASSERT_EQ(resumed.size(), from > 0 ? 1u : 0u);
      for (const SessionEvent& event : resumed) EXPECT_EQ(event.step, from);
      ASSERT_NE(last.state, TrialState::failed) << last.reason;
      stopped += last.state == TrialState::stopped ? 1 : 0;
      from = last.steps;
    }
    EXPECT_GE(stopped, 1);
    expect_same_bits(whole, last);
    EXPECT_EQ(whole.gradient_norms, last.gradient_norms);
  }
}

/// A trial that keeps its last three steps trains like one that keeps all.
TEST(Resume, KeepsTheEndOfALongHistory) {
  constexpr std::size_t kKept = 3;
  const TemporaryFolder folder;
  const TrialConfig trial = checkpointed(gpt(), folder / "gpt", 4);
  const TrialResult whole = train(session_of(1, kAmple), gpt()).trials[0];
  SessionConfig config = session_of(1, kAmple);
  config.max_history = kKept;
  TrialResult last;
  for (const std::int64_t stop_at : {5, 12, 0}) {
    last = told(config, trial, stop_at).result;
    EXPECT_LE(last.losses.size(), kKept);
  }
  ASSERT_EQ(last.state, TrialState::done) << last.reason;
  const auto kept_of = [](const auto& values) {
    return std::vector(values.end() - std::min<std::ptrdiff_t>(kKept, std::ssize(values)),
                       values.end());
  };
  EXPECT_EQ(last.weights_xxh3, whole.weights_xxh3);
  EXPECT_EQ(last.dropped_steps, 17);
  EXPECT_EQ(last.losses, kept_of(whole.losses));
  EXPECT_EQ(last.gradient_norms, kept_of(whole.gradient_norms));
  EXPECT_EQ(last.eval_losses, kept_of(whole.eval_losses));
  EXPECT_EQ(last.first_loss, whole.losses.front());
  EXPECT_EQ(last.final_loss, whole.final_loss);
  EXPECT_EQ(last.eval_loss, whole.eval_loss);
  // A session that keeps more reads such a checkpoint too.
  EXPECT_EQ(told(session_of(1, kAmple), trial).result.dropped_steps, 17);
}

/// The time before its first step does not count as the trial's own.
TEST(ResumeSpeed, CountsOnlyTheTrialsOwnTime) {
  const TemporaryFolder folder;
  const TrialConfig trial = checkpointed(gpt(), folder / "gpt");
  const std::int64_t from = told(session_of(1, kAmple), trial, 5).result.steps;
  Session session(session_of(1, kAmple));
  session.submit(trial);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto begin = std::chrono::steady_clock::now();
  session.run();
  const std::chrono::duration<double> run_s = std::chrono::steady_clock::now() - begin;
  const TrialResult result = session.result().trials[0];
  ASSERT_EQ(result.state, TrialState::done);
  ASSERT_LT(from, result.steps);
  const double tokens = 16.0 * static_cast<double>(trial.train.batch_size * (result.steps - from));
  EXPECT_GE(result.tokens_per_s, tokens / run_s.count());
}

/// If the weights cannot be handed out, the last checkpoint has them.
TEST(ResumeWeights, AreSavedBeforeTheyAreHandedOut) {
  const TemporaryFolder folder;
  TrialConfig trial = checkpointed(gpt(), folder / "gpt");
  trial.weights_file = folder / "no such folder/w.safetensors";
  const Told failed = told(session_of(1, kAmple), trial);
  EXPECT_EQ(failed.result.state, TrialState::failed);
  trial.weights_file.clear();
  const Told again = told(session_of(1, kAmple), trial);
  EXPECT_EQ(again.all(Kind::resumed).at(0).step, trial.train.max_steps);
  expect_same_bits(told(session_of(1, kAmple), gpt()).result, again.result);
}

/// A copy of the folder during training works too.
TEST_P(Resume, ContinuesFromASnapshotTakenDuringTraining) {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder / "gpt";
  TrialConfig config = checkpointed(trial(), checkpoints, 4);
  config.checkpoint.keep = 100;
  const Told whole = told(session_of(1, kAmple), config);
  const auto saved = whole.all(Kind::saved);
  ASSERT_GE(saved.size(), 2u) << "how many are put off until others are written, the disk decides";
  for (const SessionEvent& event : saved) ASSERT_EQ(event.reason, "");
  EXPECT_EQ(saved[0].step, 4);
  const auto generations = generations_in(posix_file_system(), checkpoints);
  for (std::size_t left = generations.size() - 1; left > 0; --left) {
    fs::remove_all(generation_path(checkpoints, generations[left]));
    const TemporaryFolder again;
    fs::copy(checkpoints, again / "gpt", fs::copy_options::recursive);
    const Told rest = told(session_of(1, kAmple), checkpointed(trial(), again / "gpt"));
    EXPECT_EQ(rest.all(Kind::resumed).at(0).step, saved[left - 1].step);
    expect_same_bits(whole.result, rest.result);
  }
}

INSTANTIATE_TEST_SUITE_P(Trials, Resume,
                         ::testing::Values(Case{"gpt", gpt}, Case{"sgd", sgd},
                                           Case{"resnet", resnet},
                                           Case{"cnn_in_pieces", cnn_in_pieces}, Case{"rnn", rnn}),
                         [](const auto& each) { return each.param.name; });

TEST(ResumeControl, DiffersWithoutMoments) {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder / "gpt";
  const TrialResult whole = told(session_of(1, kAmple), gpt()).result;
  told(session_of(1, kAmple), checkpointed(gpt(), checkpoints), 7);
  CheckpointStore store(posix_file_system(), checkpoints);
  const Generation last = *store.open_newest().generation;
  GenerationContent forgetful{.job = last.manifest().job,
                              .step = last.manifest().step,
                              .contract = last.manifest().contract};
  for (const ManifestFile& file : last.manifest().files) {
    const ByteSource source = last.file(file.name);
    std::string bytes = bytes_of(source);
    if (file.name == "moments.safetensors") {
      const Safetensors moments(source);
      const Bytes data = moments.tensors().back().end;
      std::fill(bytes.end() - static_cast<std::ptrdiff_t>(data), bytes.end(), '\0');
    }
    forgetful.files.push_back(bytes_file(file.name, bytes));
  }
  store.write(forgetful);
  expect_other_bits(whole, told(session_of(1, kAmple), checkpointed(gpt(), checkpoints)).result);
}

TEST(ResumeDamage, ReportsDamageAndUsesThePreviousGeneration) {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder / "gpt";
  const TrialResult whole = told(session_of(1, kAmple), gpt()).result;
  told(session_of(1, kAmple), checkpointed(gpt(), checkpoints, 5), 12);
  const auto newest = generations_in(posix_file_system(), checkpoints).back();
  fs::resize_file(generation_path(checkpoints, newest) / "weights.safetensors", 100);
  const Told rest = told(session_of(1, kAmple), checkpointed(gpt(), checkpoints));
  ASSERT_GE(rest.all(Kind::damaged).size(), 1u);
  EXPECT_NE(rest.all(Kind::damaged)[0].reason.find("weights.safetensors"), std::string::npos);
  EXPECT_EQ(rest.all(Kind::resumed).at(0).step % 5, 0);
  expect_same_bits(whole, rest.result);
}

TEST(ResumeContract, RefusesAnotherContractAndNamesTheFields) {
  const TemporaryFolder folder;
  const fs::path checkpoints = folder / "gpt";
  told(session_of(1, kAmple), checkpointed(gpt(), checkpoints), 3);
  TrialConfig other = checkpointed(gpt(), checkpoints);
  other.train.learning_rate *= 2;
  other.train.virtual_nodes = 4;
  other.train.reduction_groups = 4;
  Session session(session_of(1, kAmple));
  const std::string message = thrown<ConfigError>([&] { session.submit(other); }).what();
  for (const char* field : {"train.learning_rate: was 0.003", "train.virtual_nodes: was 8, is 4",
                            "train.reduction_groups: was 8, is 4"}) {
    EXPECT_NE(message.find(field), std::string::npos) << message;
  }
  EXPECT_EQ(message.find("train.seed"), std::string::npos) << message;
}

TEST(ResumeEnd, ReportsAnEndedTrialAgain) {
  const TemporaryFolder folder;
  const Told whole = told(session_of(1, kAmple), checkpointed(gpt(), folder / "gpt"));
  const Told again = told(session_of(1, kAmple), checkpointed(gpt(), folder / "gpt"));
  EXPECT_TRUE(again.all(Kind::step).empty());
  expect_same_bits(whole.result, again.result);
}

}  // namespace
}  // namespace spillway::testing
