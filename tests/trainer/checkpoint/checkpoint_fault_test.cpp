#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <random>
#include <string>

#include "spillway/error.h"
#include "tests/support/disk/failing_fs.h"
#include "tests/support/run/checkpoint_run.h"
#include "trainer/checkpoint/checkpoint_store.h"

/// Every call of a run fails, once or forever, in every way.
namespace spillway::testing {
namespace {

struct FaultCase {
  std::string name;
  Fault fault;
  friend void PrintTo(const FaultCase& test, std::ostream* out) { *out << test.name; }
};

constexpr CheckpointOptions kOptions{.block_bytes = CheckpointRun::kBlock};

class CheckpointFault : public ::testing::TestWithParam<FaultCase> {
 protected:
  struct Told {
    std::uint64_t recorded = 0;  ///< step of the newest; 0: none
    int num_recorded = 0, num_errors = 0;
  };

  /// Opens, writes four steps and reads; continues after each error.
  static Told run(FileSystem& files) {
    Told told;
    const auto go_on = [&](const auto& call) {
      try {
        call();
      } catch (const Error& error) {
        ++told.num_errors;
        EXPECT_FALSE(std::string(error.what()).empty());
      }
    };
    std::optional<CheckpointStore> store;
    for (int attempt = 0; attempt < 2 && !store; ++attempt)
      go_on([&] { store.emplace(files, kCheckpoints, kOptions); });
    for (std::uint64_t step = 1; store && step <= 4; ++step) {
      go_on([&] {
        store->write(made_up_content(step), [&](std::uint64_t) {
          told.recorded = step;
          ++told.num_recorded;
        });
      });
    }
    if (store) go_on([&] { store->open_newest(); });
    return told;
  }

  static void check(CrashFs& disk, const Told& told) {
    CheckpointStore store(disk, kCheckpoints, kOptions);
    const auto newest = store.open_newest();
    EXPECT_TRUE(store.verify().empty());
    EXPECT_GE(store.generations().size(), static_cast<std::size_t>(std::min(told.num_recorded, 2)));
    ASSERT_TRUE(newest.generation || told.recorded == 0);
    if (newest.generation) {
      EXPECT_GE(newest.generation->manifest().step, told.recorded);
      EXPECT_TRUE(is_right(*newest.generation));
    }
    EXPECT_GT(store.write(made_up_content(9)).generation, 0u) << "it goes on";
    EXPECT_EQ(store.open_newest().generation->manifest().step, 9u);
  }
};

TEST_P(CheckpointFault, KeepsRecordedCheckpoints) {
  Fault fault = GetParam().fault;
  for (int failed = 1; failed > 0; ++fault.at) {
    SCOPED_TRACE(fault.at);
    CrashFs disk;
    FailingFs files(disk, fault);
    const Told told = run(files);
    failed = files.num_failed();
    // After a crash that loses unsynced changes, after one that mixes them, and without a crash.
    std::mt19937 random(static_cast<unsigned>(fault.at));
    for (std::mt19937* const how : {static_cast<std::mt19937*>(nullptr), &random}) {
      CrashFs crashed(disk.after_crash(disk.num_changes(), how));
      check(crashed, told);
    }
    check(disk, told);
    if (HasFailure()) return;
  }
  EXPECT_GT(fault.at, 100);
}

TEST_P(CheckpointFault, LetsTheSameStoreContinue) {
  Fault fault = GetParam().fault;
  for (int failed = 1; failed > 0; fault.at += 3) {
    SCOPED_TRACE(fault.at);
    CrashFs disk;
    CheckpointStore(disk, kCheckpoints, kOptions).write(made_up_content(1));
    FailingFs files(disk);
    CheckpointStore store(files, kCheckpoints, kOptions);
    Fault later = fault;
    later.at += files.calls();
    files.fail_with(later);
    for (std::uint64_t step = 2; step <= 3; ++step) {
      try {
        store.write(made_up_content(step));
      } catch (const Error&) {
      }
    }
    failed = files.num_failed();
    files.heal();
    store.write(made_up_content(4));
    EXPECT_EQ(store.open_newest().generation->manifest().step, 4u);
    EXPECT_TRUE(store.verify().empty());
    if (HasFailure()) return;
  }
}

TEST(CheckpointFaults, IgnoreShortAndInterruptedCalls) {
  CrashFs disk;
  FailingFs counting(disk);
  CheckpointStore(counting, kCheckpoints, kOptions).write(made_up_content(1));
  int unnoticed = 0;
  for (int at = 0; at < counting.calls(); ++at) {
    CrashFs other;
    FailingFs files(other, Fault{.code = EINTR, .at = at});
    try {
      CheckpointStore(files, kCheckpoints, kOptions).write(made_up_content(1));
      ++unnoticed;
    } catch (const IoError& error) {
      EXPECT_EQ(error.code, EINTR);
    }
  }
  EXPECT_GT(unnoticed, 15) << "files are opened, reserved and written again";
  CrashFs other;
  FailingFs files(other, Fault{Fault::Kind::short_count, 0, 0, true});
  CheckpointStore store(files, kCheckpoints, kOptions);
  store.write(made_up_content(1));
  EXPECT_TRUE(is_right(*store.open_newest().generation));
}

std::vector<FaultCase> fault_cases() {
  std::vector<FaultCase> cases;
  for (const bool for_ever : {false, true}) {
    const std::string how = for_ever ? "ForEver" : "Once";
    for (const auto& [name, code] : std::vector<std::pair<std::string, int>>{
             {"ENOSPC", ENOSPC}, {"EIO", EIO}, {"EINTR", EINTR}})
      cases.push_back({name + how, {.code = code, .for_ever = for_ever}});
    cases.push_back({"Short" + how, {Fault::Kind::short_count, 0, 0, for_ever}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Every, CheckpointFault, ::testing::ValuesIn(fault_cases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace spillway::testing
