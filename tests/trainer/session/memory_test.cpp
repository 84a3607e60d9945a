#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iterator>

#include "core/os/file_system.h"
#include "spilling/tiers/home_store.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/resource_limit.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/wrapped_model.h"
#include "tests/support/run/training_run.h"

/// Budgets that are known before the run, and bytes that the run counts.
namespace spillway::testing {
namespace {

TEST(Memory, ReportsTheSmallestBudget) {
  for (const bool double_buffer : {true, false}) {
    const Bytes smallest = smallest_budget(tiny_trial(), double_buffer);
    SessionConfig config = session_of(1, smallest);
    config.double_buffer = double_buffer;
    EXPECT_EQ(train(config, tiny_trial()).trials[0].state, TrialState::done);
    config.devices[0].memory = smallest - kPage;
    Session session(config);
    try {
      session.submit(tiny_trial());
      FAIL() << "runs with less than the smallest budget";
    } catch (const DoesNotFit& error) {
      EXPECT_EQ(error.tier, Tier::device);
      EXPECT_EQ(error.needed, smallest);
      EXPECT_EQ(error.budget, smallest - kPage);
    }
  }
}

TEST(Memory, AdvisesLessRoomForCheckpointsWithoutDisk) {
  TrialConfig trial = tiny_trial();
  trial.checkpoint = {.folder = "/proc/checkpoints", .keep = 3};
  const auto error = thrown<DoesNotFit>([&] { Session(session_of(1, kAmple)).submit(trial); });
  const std::string message = error.what();
  EXPECT_TRUE(message.ends_with("or lower checkpoint.keep, which is 3")) << message;
  EXPECT_EQ(message.find("host_memory"), std::string::npos) << message;
}

/// More shards have more boundaries at home.
TEST(Memory, TrainsAtTheSmallestBudgetWithinHostMemory) {
  const Bytes least = smallest_budget(tiny_trial());
  const auto home_on = [](Bytes budget) {
    Session session(session_of(1, budget));
    return session.plan(session.submit(tiny_trial())).home_bytes;
  };
  SessionConfig config = session_of(1, kAmple);
  config.host_memory = (home_on(least) + home_on(kAmple)) / 2;
  ASSERT_LT(config.host_memory, home_on(least)) << "not all budgets do";
  Session ample(config);
  const Bytes said = ample.plan(ample.submit(tiny_trial())).smallest_budget_bytes;
  EXPECT_GT(said, least);
  config.devices[0].memory = said;
  EXPECT_EQ(train(config, tiny_trial()).trials[0].state, TrialState::done);
  config.devices[0].memory = said - kPage;
  Session less(config);
  EXPECT_EQ(thrown<DoesNotFit>([&] { less.submit(tiny_trial()); }).tier, Tier::host);
  config.devices[0].memory = least - kPage;
  Session least_of_all(config);
  const auto refused = thrown<DoesNotFit>([&] { least_of_all.submit(tiny_trial()); });
  EXPECT_EQ(refused.tier, Tier::device);
  EXPECT_EQ(refused.needed, said);
}

TEST(Memory, NamesADeviceTooSmallForALane) {
  SessionConfig config = session_of(2, kAmple);
  config.devices[1].memory = 16_KiB;
  Session session(config);
  const auto refused = thrown<ConfigError>([&] {
    session.submit(with_lanes(tiny_trial(), {4, 4}));
  });
  Session ample(session_of(2, kAmple));
  const Bytes needed =
      ample.plan(ample.submit(with_lanes(tiny_trial(), {4, 4}))).smallest_budget_bytes;
  EXPECT_EQ(refused.problem,
            "is 2, but only 1 device can run the trial; cpu:1 has 16.00 KiB, and the trial needs " +
                format_bytes(needed) +
                " on each; raise the memory of devices, or use data_parallel: 1");
}

TEST(Memory, RefusesHomesLargerThanTheHost) {
  SessionConfig config = session_of(1, kAmple);
  Session ample(config);
  config.host_memory = ample.plan(ample.submit(tiny_trial())).home_bytes;
  EXPECT_EQ(train(config, tiny_trial()).host_peak_bytes, config.host_memory);
  config.host_memory -= 1;
  Session session(config);
  EXPECT_THROW(session.submit(tiny_trial()), DoesNotFit);
}

/// Two trials, memory for one home: the second one waits.
TEST(Memory, QueuesTrialsForHostMemory) {
  SessionConfig config = session_of(2, kAmple);
  Session ample(config);
  config.host_memory = ample.plan(ample.submit(tiny_trial())).home_bytes;
  const RunResult result = train(config, {tiny_trial("a"), tiny_trial("b")});
  for (const TrialResult& trial : result.trials) EXPECT_EQ(trial.state, TrialState::done);
  expect_within_budgets(result);
}

/// True if this process maps a file of the folder.
bool is_mapped(const std::string& folder) {
  std::ifstream maps("/proc/self/maps");
  const std::string all{std::istreambuf_iterator<char>(maps), {}};
  return all.find(folder) != std::string::npos;
}

TEST(Memory, KeepsTheBitsWithHomesInAFile) {
  const TemporaryFolder folder;
  std::atomic<bool> seen = false;
  const TrialConfig trial = with_before(tiny_trial(), [&](LayerContext& context) {
    if (context.random.vn == 0 && is_mapped(folder.path())) seen = true;
  });
  SessionConfig config = session_of(1, smallest_budget(tiny_trial()));
  const RunResult in_memory = train(config, trial);
  EXPECT_FALSE(seen);
  config.offload_path = folder.path();
  const RunResult in_a_file = train(config, trial);
  EXPECT_TRUE(seen);
  expect_same_bits(in_a_file.trials[0], in_memory.trials[0]);
  EXPECT_EQ(in_a_file.host_peak_bytes, in_memory.host_peak_bytes);
  EXPECT_FALSE(is_mapped(folder.path()));
  TrialConfig other_seed = trial;
  other_seed.train.seed = 8;
  expect_other_bits(train(config, other_seed).trials[0], in_memory.trials[0]);
}

TEST(Memory, LimitsHomesInFilesByTheHostBudget) {
  const TemporaryFolder folder;
  SessionConfig config = session_of(2, kAmple);
  Session ample(config);
  config.host_memory = ample.plan(ample.submit(tiny_trial())).home_bytes;
  config.offload_path = folder.path();
  const RunResult result = train(config, {tiny_trial("a"), tiny_trial("b")});
  for (const TrialResult& trial : result.trials) EXPECT_EQ(trial.state, TrialState::done);
  EXPECT_EQ(result.host_peak_bytes, config.host_memory);
}

TEST(Memory, RefusesAFolderThatCannotHoldHomes) {
  const TemporaryFolder folder;
  SessionConfig config = session_of(1, kAmple);
  config.offload_path = folder / "missing";
  EXPECT_EQ(thrown<ConfigError>([&] { Session session(config); }).field, "offload_path");
  std::filesystem::create_directory(config.offload_path);
  Session session(config);
  std::filesystem::remove(config.offload_path);
  EXPECT_EQ(thrown<ConfigError>([&] { session.submit(tiny_trial()); }).field, "offload_path");
}

/// The system would refuse a file of this size to this process.
TEST(Memory, ChecksDiskSpaceWithoutReservingIt) {
  const TemporaryFolder folder;
  SessionConfig config = session_of(1, kAmple);
  config.offload_path = folder.path();
  Session session(config);
  const ResourceLimit limit(RLIMIT_FSIZE, 4_KiB);
  const Bytes home = session.plan(session.submit(tiny_trial())).home_bytes;
  EXPECT_GT(home, 4_KiB);
  const Bytes free = posix_file_system().free_bytes(folder.path());
  require_home_room(folder.path(), free / 2, home);
  const auto error = thrown<DoesNotFit>([&] { require_home_room(folder.path(), 2 * free, home); });
  EXPECT_EQ(error.tier, Tier::disk);
  EXPECT_EQ(error.needed, 2 * free);
}

/// `virtual_nodes` of the same size in one reduction group, without evaluation.
TrialConfig trial_of(int virtual_nodes) {
  TrialConfig trial = tiny_trial();
  trial.train.batch_size = 2 * virtual_nodes;
  trial.train.virtual_nodes = virtual_nodes;
  trial.train.reduction_groups = 1;
  trial.data = std::make_shared<DataSplit>(DataSplit{trial.data->train, nullptr});
  return trial;
}

TEST(Memory, MovesWeightsAtMostTwiceAStep) {
  for (const Bytes percent : {100u, 120u, 150u, 200u}) {
    std::vector<Bytes> moved;
    for (const int virtual_nodes : {1, 16}) {
      const TrialConfig trial = trial_of(virtual_nodes);
      Session session(session_of(1, smallest_budget(trial_of(1)) * percent / 100 / kPage * kPage));
      const JobId id = session.submit(trial);
      const RunResult simulated = session.simulate();
      session.run();
      const RunResult result = session.result();
      ASSERT_GT(session.plan(id).num_shards, 1);
      EXPECT_GE(simulated.devices[0].peak_bytes, result.devices[0].peak_bytes);
      const auto steps = static_cast<Bytes>(trial.train.max_steps);
      EXPECT_LE(result.h2d_weight_bytes, 2 * session.plan(id).shard_weights_bytes * steps);
      EXPECT_GT(result.h2d_weight_bytes, session.plan(id).shard_weights_bytes * steps);
      EXPECT_EQ(result.h2d_weight_bytes, simulated.h2d_weight_bytes);
      EXPECT_EQ(result.devices[0].ops, simulated.devices[0].ops);
      moved.push_back(result.h2d_weight_bytes);
    }
    EXPECT_EQ(moved[0], moved[1]) << percent;
  }
}

/// The completion times of copies decide which buffers are freed by then: with little memory, any
/// timing is possible.
TEST(Memory, PredictsThePeak) {
  const auto predicted = [](Bytes budget) {
    Session session(session_of(1, budget));
    session.submit(tiny_trial());
    return session.simulate().devices[0].peak_bytes;
  };
  const Bytes least = smallest_budget(tiny_trial());
  EXPECT_EQ(predicted(least), least);
  EXPECT_EQ(predicted(kAmple), train(session_of(1, kAmple), tiny_trial()).devices[0].peak_bytes);
}

TEST(Memory, LoadsAResidentModelOnceAStep) {
  const RunResult result = train(session_of(1, kAmple), trial_of(16));
  const auto weights = static_cast<Bytes>(result.trials[0].parameters) * sizeof(float);
  EXPECT_GE(result.h2d_weight_bytes, 20 * weights);
  EXPECT_LE(result.h2d_weight_bytes, 21 * weights);
}

}  // namespace
}  // namespace spillway::testing
