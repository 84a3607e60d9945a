#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <string>

#include "core/device/activation_pool.h"
#include "core/device/mapped_memory.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/run/training_run.h"
#include "tests/trainer/session/exactness/kind_training.h"
#include "trainer/torch/counting_allocator.h"

/// Activations in a dedicated pool of the device's memory, as on GPUs.
namespace spillway::testing {
namespace {

SessionConfig with_pool(int devices, Bytes memory, double share) {
  SessionConfig config = session_of(devices, memory);
  config.activation_share = share;
  return config;
}

TEST(DedicatedActivations, WorkAtTheSmallestBudgetWithTheSameBits) {
  const RunResult anywhere = train(session_of(1, kAmple), tiny_trial());
  for (const double share : {0.1, 0.3, 0.8}) {
    SCOPED_TRACE(share);
    Session ample(with_pool(1, kAmple, share));
    const Bytes smallest = ample.plan(ample.submit(tiny_trial())).smallest_budget_bytes;
    const RunResult result = train(with_pool(1, smallest, share), tiny_trial());
    expect_same_bits(result.trials[0], anywhere.trials[0]);
    EXPECT_EQ(result.trials[0].gradient_norms, anywhere.trials[0].gradient_norms);
    expect_within_budgets(result);
    Session less(with_pool(1, smallest - kPage, share));
    EXPECT_THROW(less.submit(tiny_trial()), DoesNotFit);
  }
}

/// The proposed share works.
TEST(DedicatedActivations, ProposeAShareThatWorks) {
  const auto smallest = [](double share) {
    Session session(with_pool(1, kAmple, share));
    return session.plan(session.submit(tiny_trial())).smallest_budget_bytes;
  };
  const Bytes with_half = smallest(0.5);
  Session session(with_pool(1, with_half, 0.05));
  const std::string problem = thrown<DoesNotFit>([&] { session.submit(tiny_trial()); }).what();
  const std::string proposal = "; or set activation_share to ";
  const auto found = problem.find(proposal);
  ASSERT_NE(found, std::string::npos) << problem;
  const double share = std::stod(problem.substr(found + proposal.size()));
  EXPECT_GT(share, 0.05);
  EXPECT_LE(smallest(share), with_half);
  EXPECT_NE(problem.find("it needs " + format_bytes(smallest(share)) + ";"), std::string::npos)
      << problem;
}

TEST(DedicatedActivations, ProposeNoShareWithoutAPool) {
  Session session(session_of(1, smallest_budget(tiny_trial()) - kPage));
  const std::string problem = thrown<DoesNotFit>([&] { session.submit(tiny_trial()); }).what();
  EXPECT_EQ(problem.find("activation_share"), std::string::npos) << problem;
}

TEST(DedicatedActivations, RefuseAnInvalidShare) {
  for (const double share : {-0.1, 0.95, 2.0}) {
    const std::string problem =
        thrown<ConfigError>([&] { Session session(with_pool(1, kAmple, share)); }).what();
    EXPECT_NE(problem.find("activation_share: is "), std::string::npos) << problem;
  }
}

TEST(DedicatedActivations, ChargeOnlyGpuBlocks) {
  ActivationPool pool("gpu", std::make_unique<MappedMemory>(64_KiB, Tier::device, "gpu"));
  EXPECT_EQ(place_on_gpu(100), nullptr) << "of nobody";
  void* block = nullptr;
  {
    const MeterScope scope(pool, /*of_gpu=*/true);
    pool.begin_op(1000);
    block = place_on_gpu(1000);
    EXPECT_EQ(pool.in_use(), 1000u);
    EXPECT_THROW(place_on_gpu(1), OutOfMemory);
    const at::Tensor on_host = at::empty({4096});
    EXPECT_EQ(pool.in_use(), 1000u);
  }
  EXPECT_TRUE(remove_from_gpu(block));
  EXPECT_FALSE(remove_from_gpu(block)) << "it is nobody's any more";
  EXPECT_EQ(pool.in_use(), 0u);
}

INSTANTIATE_TEST_SUITE_P(DedicatedActivations, KindTraining, ::testing::Values(DeviceKind::cpu));

}  // namespace
}  // namespace spillway::testing
