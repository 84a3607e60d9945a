#include "scheduler/policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

std::size_t picked(const char* policy, const std::vector<Candidate>& candidates) {
  return pick(*make_policy(policy), candidates);
}

TEST(Policy, LrtfTakesTheLongestRemainingTime) {
  EXPECT_EQ(picked("lrtf", {{JobId(0), 0, 0, 1.0}, {JobId(1), 0, 0, 3.0}, {JobId(2), 0, 0, 2.0}}),
            1u);
}

TEST(Policy, FifoTakesTheFirstSubmitted) {
  EXPECT_EQ(picked("fifo", {{JobId(2), 0, 0, 9.0}, {JobId(1), 0, 0, 1.0}, {JobId(3), 0, 0, 2.0}}),
            1u);
}

TEST(Policy, TiesGoToResidentBytesThenJobThenLane) {
  EXPECT_EQ(picked("lrtf", {{JobId(0), 0, 0, 1, 10}, {JobId(1), 0, 0, 1, 20}}), 1u);
  EXPECT_EQ(picked("lrtf", {{JobId(1), 0, 0, 1, 10}, {JobId(0), 0, 0, 1, 10}}), 1u);
  EXPECT_EQ(picked("lrtf", {{JobId(0), 1, 0, 1, 10}, {JobId(0), 0, 0, 1, 10}}), 1u);
}

TEST(Policy, OfAnotherNameIsNone) {
  EXPECT_EQ(make_policy("srtf"), nullptr);
  EXPECT_EQ(make_policy(""), nullptr);
  EXPECT_EQ(make_policy("lrtf")->name(), "lrtf");
  EXPECT_EQ(make_policy("fifo")->name(), "fifo");
}

}  // namespace
}  // namespace spillway
