#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include "tests/support/gpu/expect_given_back.h"
#include "tests/support/gpu/fake_cudart.h"
#include "tests/support/gpu/torch_on_gpu.h"
#include "tests/support/models/wrapped_model.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"
#include "trainer/torch/torch_gpu.h"

/// Training on two simulated GPUs.
namespace spillway::testing {
namespace {

class FakeGpus : public ::testing::Test {
 protected:
  ~FakeGpus() override { expect_given_back(); }

  static TrialConfig spilled(const std::vector<int>& lane_groups) {
    TrialConfig trial = with_lanes(tiny_trial(), lane_groups);
    trial.train.order = OrderChoice::shard_major;
    return trial;
  }

  static Bytes smallest() {
    Session session(gpus(1, kAmple));
    return session.plan(session.submit(spilled({8}))).smallest_budget_bytes;
  }

  static const TrialResult& alone() {
    static const RunResult result = train(gpus(1, kAmple), tiny_trial());
    return result.trials[0];
  }
};

TEST_F(FakeGpus, KeepTheBitsOfOneWhenTwoSpill) {
  const RunResult result = train(gpus(2, 2 * smallest()), spilled({5, 3}));
  EXPECT_GT(result.trials[0].num_shards, 1);
  expect_same_bits(result.trials[0], alone());
  expect_within_budgets(result);
}

/// GPU ops take no core from each other, so two trials take as long as one.
TEST_F(FakeGpus, ComputeConcurrentlyInASimulation) {
  Session session(gpus(2, kAmple));
  session.submit(tiny_trial("one"));
  const double one_s = session.simulate().wall_s;
  session.submit(tiny_trial("another"));
  const RunResult both = session.simulate();
  EXPECT_GT(both.devices[0].ops, 0u);
  EXPECT_GT(both.devices[1].ops, 0u);
  EXPECT_LT(both.wall_s, 1.5 * one_s);
}

/// LibTorch reports the failure in an op; data that the other GPU would have copied is lost too.
TEST_F(FakeGpus, TakeOverTheWorkOfAFailedGpu) {
  const TrialConfig trial = with_before(spilled({4, 4}), [](LayerContext& context) {
    if (context.gpu != 1 || !context.training || context.random.step != 7) return;
    fake_cuda().broken[1] = cudaErrorIllegalAddress;
  });
  {
    WatchedSession run(gpus(2, 2 * smallest()));
    run.session.submit(trial);
    run.run();
    const auto lost = run.all(SessionEvent::Kind::lost);
    ASSERT_EQ(lost.size(), 1u);
    EXPECT_EQ(lost[0].reason, "an illegal memory access");
    EXPECT_EQ(run.result.trials[0].lanes, 1);
    expect_same_bits(run.result.trials[0], alone());
  }
  fake_cuda().broken[1] = cudaSuccess;
}

// Negative controls: the fake refuses what a GPU would refuse.

TEST_F(FakeGpus, RefuseCpuTensors) {
  on_gpu([](const at::TensorOptions& here) {
    const at::Tensor there = at::ones({2}, here);
    EXPECT_NO_THROW(at::add(there, at::ones({2}, here)));
    EXPECT_NO_THROW(at::add(there, 1));
    EXPECT_THROW(at::add(there, at::ones({2})), c10::Error);
    EXPECT_THROW(at::stack({there, at::ones({2})}), c10::Error);
  });
}

TEST_F(FakeGpus, ReadNoNumbersInOps) {
  on_gpu(
      [](const at::TensorOptions& here) { EXPECT_THROW(at::ones({}, here).item(), c10::Error); });
}

TEST_F(FakeGpus, BindAThreadToOneGpu) {
  on_gpu([](const at::TensorOptions& here) {
    EXPECT_THROW(at::ones({2}, here.device(torch_device(1))), c10::Error);
  });
  EXPECT_THROW(at::ones({2}, at::TensorOptions(torch_device(0))), c10::Error);
}

}  // namespace
}  // namespace spillway::testing
