#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <thread>

#include "spillway/session.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/models/wrapped_model.h"
#include "tests/support/run/training_run.h"

/// A session changes nothing for the rest of its process, and what the process changes does not
/// change bits unnoticed. The first test needs a process that has had no session.
namespace spillway::testing {
namespace {

TrialResult trained(TrialConfig trial) {
  const TemporaryFolder folder;
  trial.weights_file = folder / "w.safetensors";
  return train(session_of(1, kAmple), trial).trials.at(0);
}

TEST(Guest, FreesWhatOneDnnAllocatedBeforeIt) {
  at::Tensor before = at::rand({64, 64}).to_mkldnn();
  const at::Tensor expected = before.to_dense();
  EXPECT_EQ(trained(tiny_trial()).state, TrialState::done);
  at::Tensor after = at::rand({64, 64}).to_mkldnn();
  EXPECT_TRUE(at::equal(before.to_dense(), expected));
  before.reset();
  after.reset();
}

TEST(Guest, AcceptsThatTheProcessHasInteropThreads) {
  at::set_num_interop_threads(2);
  std::promise<void> launched;
  at::launch([&] { launched.set_value(); });
  launched.get_future().wait();
  EXPECT_EQ(trained(tiny_trial()).state, TrialState::done);
  EXPECT_EQ(at::get_num_interop_threads(), 2);
}

TEST(Guest, LeavesTheThreadsOfTheProcess) {
  at::set_num_threads(1);
  const TrialResult one = trained(tiny_trial());
  at::set_num_threads(3);
  expect_same_bits(trained(tiny_trial()), one);
  EXPECT_EQ(at::get_num_threads(), 3);
  EXPECT_EQ(std::async(std::launch::async, [] { return at::get_num_threads(); }).get(), 3);
}

TEST(Guest, ComputesOnOneThreadWhenTheProcessChoosesMore) {
  const auto trial_with = [](int threads) {
    return with_before(tiny_trial(), [threads](LayerContext&) {
      std::thread([threads] { at::set_num_threads(threads); }).join();
    });
  };
  const TrialResult one = trained(trial_with(1));
  expect_same_bits(trained(trial_with(2)), one);
}

/// Switches oneDNN off as a user's thread would, while the trial trains.
TrialConfig switches_one_dnn_off() {
  return with_before(tiny_trial(), [](LayerContext& context) {
    if (context.random.step == 2) at::globalContext().setUserEnabledMkldnn(false);
  });
}

TEST(Guest, FailsATrialWhoseKernelsTheProcessChanges) {
  const TrialResult failed = trained(switches_one_dnn_off());
  at::globalContext().setUserEnabledMkldnn(true);
  EXPECT_EQ(failed.state, TrialState::failed);
  EXPECT_LE(failed.steps, 2);
  EXPECT_EQ(
      failed.reason,
      "torch.backends.mkldnn.enabled is false now, but was true when the trial was submitted, "
      "which can change its bits; set it back and submit the trial again");
}

std::size_t resident_bytes() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Guest, GivesItsMemoryBack) {
  const auto train = [] { trained(tiny_trial()); };
  train();
  std::vector<std::vector<std::byte>> freed(2000, std::vector<std::byte>(64 << 10));
  const std::size_t most = resident_bytes();
  freed.clear();
  train();
  EXPECT_LT(resident_bytes(), most - (64 << 20));
}

}  // namespace
}  // namespace spillway::testing
