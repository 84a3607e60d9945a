#include "runs/folder/machine_fit.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/check/thrown.h"

namespace spillway::testing {
namespace {

TEST(MachineFit, CountsHomesThatAreAdmittedAtOnce) {
  EXPECT_EQ(most_at_once({}, 10), 0u);
  EXPECT_EQ(most_at_once({3, 3, 3}, 100), 9u);
  EXPECT_EQ(most_at_once({3, 3, 3}, 8), 6u) << "two at once, not the whole budget";
  EXPECT_EQ(most_at_once({6, 3, 5}, 10), 9u) << "the first and the second";
  EXPECT_EQ(most_at_once({6, 4, 5}, 10), 10u);
  std::vector<Bytes> many;
  for (Bytes home = 1000; home < 1100; ++home) many.push_back(home);
  EXPECT_EQ(most_at_once(many, 50'000), 50'000u);
}

/// A trial with a home of 100 and a unit of 10 bytes.
TrialPlan plan_of(int num_shards) {
  return {.num_shards = num_shards,
          .home_bytes = 100,
          .home_weights_bytes = 30,
          .home_moments_bytes = 45,
          .home_sums_bytes = 20,
          .unit_weights_bytes = 4,
          .unit_sums_bytes = 3,
          .unit_activations_bytes = 2,
          .unit_boundaries_bytes = 1};
}

SessionConfig session_of(std::vector<DeviceConfig> devices) {
  SessionConfig session{.devices = std::move(devices)};
  session.host_memory = 250;
  return session;
}

TEST(MachineFit, CountsDevicesAsFarAsTheyAreUsed) {
  const auto session = session_of({{.memory = 12}, {.memory = 1000}});
  const MemoryNeed one = memory_need(session, {plan_of(1)});
  EXPECT_EQ(one.homes, 100u);
  EXPECT_EQ(one.devices, (std::vector<Bytes>{12, 15})) << "a unit, and 5 of boundaries";
  EXPECT_EQ(one.total(), 127u);
  EXPECT_EQ(memory_need(session, {plan_of(3)}).devices[1], 25u) << "the next unit too";
  TrialPlan stays = plan_of(3);
  stays.shards_stay = true;
  EXPECT_EQ(memory_need(session, {stays}).devices[1], 15u) << "there is no other unit";
  const MemoryNeed three = memory_need(session, {plan_of(1), plan_of(1), plan_of(1)});
  EXPECT_EQ(three.homes, 200u) << "the third one waits";
  EXPECT_EQ(three.devices[1], 35u);
}

TEST(MachineFit, CountsNoMemoryForGpusAndFiles) {
  auto session = session_of({{.kind = DeviceKind::cuda, .memory = 1000}});
  EXPECT_EQ(memory_need(session, {plan_of(1)}).total(), 100u);
  session.offload_path = "/somewhere";
  EXPECT_EQ(memory_need(session, {plan_of(1)}).total(), 0u);
}

TEST(MachineFit, LimitsARunOnlyByAllMemoryOfTheMachine) {
  const MemoryNeed need{.homes = 7_GiB, .devices = {1_GiB, 0}};
  require_memory(need, {.total = 8_GiB, .available = 1_GiB});
  const auto error =
      thrown<MachineTooSmall>([&] { require_memory(need, {.total = 6_GiB, .available = 6_GiB}); });
  EXPECT_STREQ(error.what(),
               "the run fits its budgets, not this machine: it needs 8.00 GiB of memory (7.00 GiB "
               "for training state, 1.00 GiB for devices), the machine has 6.00 GiB");
  const Error& any = error;
  EXPECT_EQ(std::string(any.what()), error.what());
  EXPECT_EQ(error.needed, 8_GiB);
  EXPECT_EQ(error.budget, 6_GiB);
}

TEST(MachineFit, WarnsIfMemoryIsShortNow) {
  const MemoryNeed need{.homes = 7_GiB};
  EXPECT_EQ(warning_of_memory(need, {.total = 8_GiB, .available = 7_GiB}), "");
  EXPECT_EQ(warning_of_memory(need, {.total = 6_GiB, .available = 5_GiB}), "") << "it is refused";
  EXPECT_EQ(warning_of_memory(need, {.total = 8_GiB, .available = 6_GiB}),
            "the run needs 7.00 GiB of memory (for training state), but other programs leave only "
            "6.00 GiB of 8.00 GiB; end some, or the system may end the run");
}

}  // namespace
}  // namespace spillway::testing
