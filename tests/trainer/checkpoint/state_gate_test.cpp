#include "trainer/checkpoint/state_gate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

namespace spillway {
namespace {

using namespace std::chrono_literals;

bool waits(const std::future<void>& call) {
  return call.wait_for(20ms) != std::future_status::ready;
}

TEST(StateGate, LetsUpdatesPassWithoutASnapshot) {
  StateGate gate(2, 0);
  for (int step = 0; step < 3; ++step) {
    gate.begin_update(0);
    gate.end_update(0);
  }
  EXPECT_EQ(gate.version(0), 3);
  EXPECT_EQ(gate.version(1), 0);
}

TEST(StateGate, BlocksAnUpdateUntilItsParameterIsRead) {
  StateGate gate(2, 5);
  gate.begin_snapshot(5);
  EXPECT_TRUE(gate.wait_for(0));
  const auto update = std::async(std::launch::async, [&] {
    gate.begin_update(0);
    gate.end_update(0);
  });
  EXPECT_TRUE(waits(update));
  gate.release(0);
  update.wait();
  EXPECT_EQ(gate.version(0), 6);
}

TEST(StateGate, KnowsWhichUpdatesMayWait) {
  StateGate gate(1, 5);
  EXPECT_FALSE(gate.is_read_before(6));
  gate.begin_snapshot(5);
  EXPECT_TRUE(gate.is_read_before(6));
  EXPECT_FALSE(gate.is_read_before(5)) << "it reads what they write";
  gate.end_snapshot();
  EXPECT_FALSE(gate.is_read_before(6));
}

TEST(StateGate, BlocksASnapshotUntilItsStepIsUpdated) {
  StateGate gate(1, 5);
  gate.begin_snapshot(6);
  auto read = std::async(std::launch::async, [&] { EXPECT_TRUE(gate.wait_for(0)); });
  EXPECT_TRUE(waits(read));
  gate.begin_update(0);  // to 6: the snapshot does not block it
  gate.end_update(0);
  read.wait();
  const auto next = std::async(std::launch::async, [&] { gate.begin_update(0); });
  EXPECT_TRUE(waits(next));
  gate.end_snapshot();
}

TEST(StateGate, ReportsThatASnapshotNeedNotWait) {
  const auto update = [](StateGate& gate, std::size_t param) {
    gate.begin_update(param);
    gate.end_update(param);
  };
  StateGate gate(2, 5);
  int calls = 0;
  gate.begin_snapshot(6, [&] { ++calls; });
  update(gate, 1);
  EXPECT_EQ(calls, 0) << "one is behind";
  update(gate, 0);
  EXPECT_EQ(calls, 1);
  gate.end_snapshot();
  update(gate, 0);
  gate.cancel();
  EXPECT_EQ(calls, 1) << "once";
  StateGate there(2, 5);
  there.begin_snapshot(5, [&] { ++calls; });
  EXPECT_EQ(calls, 2) << "all are there";
  StateGate ended(2, 5);
  ended.begin_snapshot(6, [&] { ++calls; });
  ended.cancel();
  EXPECT_EQ(calls, 3) << "none comes any more";
}

TEST(StateGate, ReleasesWaitersAtTheEnd) {
  StateGate gate(2, 0);
  gate.begin_snapshot(1);
  auto read = std::async(std::launch::async, [&] { EXPECT_FALSE(gate.wait_for(0)); });
  EXPECT_TRUE(waits(read));
  gate.cancel();
  read.wait();
}

}  // namespace
}  // namespace spillway
