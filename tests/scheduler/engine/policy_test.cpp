#include "scheduler/engine/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace spillway {
namespace {

/// Position of the first candidate with the largest priority.
std::size_t picked(const char* name, const std::vector<Candidate>& candidates) {
  const auto policy = make_policy(name);
  const auto best =
      std::ranges::max_element(candidates, {}, [&](const auto& c) { return policy->priority(c); });
  return static_cast<std::size_t>(best - candidates.begin());
}

TEST(Policy, PicksTheLongestRemainingTimeForLrtf) {
  EXPECT_EQ(picked("lrtf", {{JobId(0), 0, 0, 1.0}, {JobId(1), 0, 0, 3.0}, {JobId(2), 0, 0, 2.0}}),
            1u);
}

TEST(Policy, PicksTheFirstSubmittedForFifo) {
  EXPECT_EQ(picked("fifo", {{JobId(2), 0, 0, 9.0}, {JobId(1), 0, 0, 1.0}, {JobId(3), 0, 0, 2.0}}),
            1u);
}

TEST(Policy, PicksTheShortestRemainingTimeForSrtf) {
  EXPECT_EQ(picked("srtf", {{JobId(0), 0, 0, 2.0}, {JobId(1), 0, 0, 1.0}, {JobId(2), 0, 0, 3.0}}),
            1u);
}

TEST(Policy, PicksTheLeastRecentlyServedForRoundRobin) {
  const auto served = [](int job, std::uint64_t when) {
    return Candidate{.job = JobId(job), .last_served = when};
  };
  EXPECT_EQ(picked("round_robin", {served(0, 9), served(1, 4), served(2, 7)}), 1u);
  EXPECT_EQ(picked("round_robin", {served(0, 9), served(1, 4), served(2, 0)}), 2u) << "never yet";
}

/// Equal candidates are picked about equally often, for any job, track, unit and step.
TEST(Policy, RanksByJobTrackUnitAndStepForRandom) {
  constexpr int kDraws = 3000;
  for (int what = 0; what < 4; ++what) {
    std::vector<int> taken(3);
    for (int i = 0; i < kDraws; ++i) {
      std::vector<Candidate> candidates;
      for (int c = 0; c < 3; ++c) {
        const int n = 3 * i + c;
        candidates.push_back({.job = JobId(what == 0 ? n : 1),
                              .track = what == 1 ? n : 2,
                              .unit = what == 2 ? n : 3,
                              .step = what == 3 ? n : 4});
      }
      const auto best = picked("random", candidates);
      EXPECT_EQ(picked("random", candidates), best) << "the same again";
      ++taken[best];
    }
    for (int count : taken) EXPECT_NEAR(count, kDraws / 3, 150) << what;
  }
}

TEST(Policy, IsFoundByName) {
  for (std::string_view name : kPolicyNames) EXPECT_EQ(make_policy(name)->name(), name);
  EXPECT_EQ(make_policy("lifo"), nullptr);
  EXPECT_EQ(make_policy(""), nullptr);
}

}  // namespace
}  // namespace spillway
