#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "tests/support/disk/failing_fs.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/run/checkpoint_run.h"
#include "trainer/checkpoint/checkpoint_store.h"

/// Crashes every scenario at every disk change, with unsynced data lost, kept, torn or reordered.
/// The remaining files must contain every recorded checkpoint.
namespace spillway::testing {
namespace {

using Path = FileSystem::Path;

constexpr unsigned kRandomStates = kSanitized ? 3 : 20;
constexpr int kLeastStates = kSanitized ? 100 : 500;

struct Scenario {
  std::string name;
  std::function<void(CheckpointRun& run)> act;
  std::function<Disk()> disk = [] { return Disk(); };
  friend void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }
};

void ignore_errors(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error&) {
  }
}

/// The disk after a crash of `act` at `part` of its changes.
Disk left_by(const std::function<void(CheckpointRun& run)>& act, double part, unsigned seed) {
  CrashFs disk;
  CheckpointRun run(disk);
  act(run);
  std::mt19937 random(seed);
  return disk.after_crash(static_cast<std::size_t>(static_cast<double>(disk.num_changes()) * part),
                          &random);
}

void write_steps(CheckpointRun& run, std::uint64_t first, std::uint64_t last, int keep = 2) {
  auto store = run.open(kCheckpoints, keep);
  for (auto step = first; step <= last; ++step) run.write(store, step);
}

/// Sync number `at` of a store that writes steps 2, 3, 4 after another store wrote 1.
std::function<void(CheckpointRun&)> failing_sync(int at) {
  return [=](CheckpointRun& run) {
    write_steps(run, 1, 1);
    FailingFs once(run.disk(), Fault{Fault::Kind::sync, EIO, at});
    CheckpointStore store(once, kCheckpoints, {.block_bytes = CheckpointRun::kBlock});
    for (std::uint64_t step = 2; step <= 4; ++step) ignore_errors([&] { run.write(store, step); });
    EXPECT_EQ(once.num_failed(), 1);
    EXPECT_EQ(run.recorded().at(kCheckpoints).size(), 3u);
  };
}

void interleaved(CheckpointRun& run) {
  const Path a = "/a", b = "/b";
  auto store_a = run.open(a), store_b = run.open(b);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    run.write(store_a, step, a);
    run.write(store_b, 100 + step, b);
  }
}

void full_then_free(CheckpointRun& run) {
  auto store = run.open();
  run.write(store, 1);
  run.disk().set_capacity(6000);
  ignore_errors([&] { run.write(store, 2); });
  run.disk().set_capacity(1_GiB);
  run.write(store, 3);
}

void short_counts(CheckpointRun& run) {
  FailingFs files(run.disk(), Fault{Fault::Kind::short_count, 0, 0, true});
  run.open();
  CheckpointStore store(files, kCheckpoints, {.block_bytes = CheckpointRun::kBlock});
  for (std::uint64_t step = 1; step <= 3; ++step) run.write(store, step);
}

void recorder_fails(CheckpointRun& run) {
  auto store = run.open();
  run.write(store, 1);
  ignore_errors(
      [&] { store.write(made_up_content(2), [](auto) { throw Error("the journal is full"); }); });
  run.write(store, 3);
}

void damaged_in_between(CheckpointRun& run) {
  auto store = run.open();
  run.write(store, 1);
  run.write(store, 2);
  auto again = run.open();
  again.open_newest();
  run.write(again, 3);
  run.write(again, 4);
}

/// Recovers from a crash, whatever it left, and continues.
void recover(CheckpointRun& run) {
  auto store = run.open();
  const auto newest = store.open_newest();
  std::uint64_t step = newest.generation ? newest.generation->manifest().step : 0;
  for (int i = 0; i < 2; ++i) run.write(store, ++step);
}

std::vector<Scenario> scenarios() {
  const auto steps = [](std::uint64_t last, int keep = 2) {
    return [=](CheckpointRun& run) { write_steps(run, 1, last, keep); };
  };
  const auto crashed = [=](double part, unsigned seed) {
    return [=] { return left_by(steps(3), part, seed); };
  };
  return {{"FirstCommit", steps(1)},
          {"SecondCommit", steps(2)},
          {"Rotation", steps(4)},
          {"KeepOne", steps(3, 1)},
          {"KeepThree", steps(5, 3)},
          {"TwoTrials", interleaved},
          {"OpenedAgain",
           [](CheckpointRun& run) {
             for (std::uint64_t step = 1; step <= 3; ++step) write_steps(run, step, step);
           }},
          {"ReadInBetween", damaged_in_between},
          {"CrashDuringFirstRecovery", recover, crashed(0.1, 1)},
          {"CrashDuringRecovery", recover, crashed(0.5, 2)},
          {"CrashDuringRecoveryOfAPrune", recover, crashed(0.97, 3)},
          {"CrashAfterCrash", recover,
           [=] {
             CrashFs disk(left_by(steps(3), 0.6, 4));
             CheckpointRun run(disk);
             recover(run);
             std::mt19937 random(5);
             return disk.after_crash(disk.num_changes() / 2, &random);
           }},
          {"FailingSyncThenSucceeding", failing_sync(4)},
          {"FailingSyncOfTheFolderThenSucceeding", failing_sync(8)},
          {"FailingSyncOfTheParentThenSucceeding", failing_sync(9)},
          {"FullThenFree", full_then_free},
          {"ShortCounts", short_counts},
          {"RecorderFails", recorder_fails}};
}

class CheckpointCrash : public ::testing::TestWithParam<Scenario> {
 protected:
  /// The recorded checkpoints up to then, in order.
  static std::vector<std::uint64_t> steps_before(std::size_t change,
                                                 const std::vector<Recorded>& recorded) {
    std::vector<std::uint64_t> steps;
    for (const auto& one : recorded)
      if (one.change <= change) steps.push_back(one.step);
    return steps;
  }

  /// A disk after a crash holds the newest recorded generation, or a newer one, complete; as many
  /// as the store keeps; and no damaged one. Writing continues.
  void check(Disk left, std::size_t change, const CheckpointRun& run) {
    CrashFs disk(std::move(left));
    for (const auto& [folder, recorded] : run.recorded()) {
      const auto steps = steps_before(change, recorded);
      CheckpointStore store(disk, folder, {.keep = run.keep(folder)});
      const auto newest = store.open_newest();
      EXPECT_TRUE(newest.findings.empty()) << newest.findings.front().problem;
      EXPECT_TRUE(store.verify().empty());
      ASSERT_TRUE(newest.generation || (steps.empty() && first_step_ == 0));
      EXPECT_GE(store.generations().size(),
                std::min(steps.size(), static_cast<std::size_t>(run.keep(folder))));
      if (newest.generation) {
        EXPECT_GE(newest.generation->manifest().step, steps.empty() ? first_step_ : steps.back());
        EXPECT_TRUE(is_right(*newest.generation, folder.filename()));
      }
      if (num_states_ % 4 == 0) goes_on(disk, folder, run.keep(folder));
    }
    ++num_states_;
  }

  void goes_on(CrashFs& disk, const Path& folder, int keep) {
    CheckpointStore store(disk, folder, {.keep = keep, .block_bytes = CheckpointRun::kBlock});
    store.write(made_up_content(999, folder.filename()));
    EXPECT_EQ(store.open_newest().generation->manifest().step, 999u);
    EXPECT_TRUE(store.verify().empty());
  }

  static std::uint64_t newest_step(Disk disk) {
    CrashFs files(std::move(disk));
    const auto newest = CheckpointStore(files, kCheckpoints).open_newest();
    return newest.generation ? newest.generation->manifest().step : 0;
  }

  std::uint64_t first_step_ = 0;  ///< already on the disk
  int num_states_ = 0;
};

TEST_P(CheckpointCrash, KeepsRecordedCheckpoints) {
  CrashFs disk(GetParam().disk());
  first_step_ = newest_step(disk.now());
  CheckpointRun run(disk);
  GetParam().act(run);
  for (const auto& [folder, recorded] : run.recorded()) ASSERT_FALSE(recorded.empty());
  for (std::size_t change = 0; change <= disk.num_changes(); ++change) {
    check(disk.after_crash(change, nullptr), change, run);
    for (unsigned seed = 0; seed < kRandomStates; ++seed) {
      std::mt19937 random(seed + 1000 * static_cast<unsigned>(change));
      check(disk.after_crash(change, &random), change, run);
      if (HasFailure()) FAIL() << "crash at change " << change << " with seed " << seed;
    }
  }
  RecordProperty("states", num_states_);
  EXPECT_GT(num_states_, kLeastStates);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, CheckpointCrash, ::testing::ValuesIn(scenarios()),
                         [](const auto& scenario) { return scenario.param.name; });

}  // namespace
}  // namespace spillway::testing
