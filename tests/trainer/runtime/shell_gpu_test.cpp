#include <gtest/gtest.h>

#include "core/base/mutex.h"
#include "tests/support/gpu/expect_given_back.h"
#include "tests/support/gpu/fake_cudart.h"
#include "tests/support/run/real_run.h"

/// The shell on devices whose threads run ahead of their computation, like GPUs, without a GPU.
namespace spillway::testing {
namespace {

/// Ops compute on streams, some time after their device threads have enqueued them.
class ShellOnGpus : public ::testing::Test {
 protected:
  ~ShellOnGpus() override {
    expect_given_back();
    EXPECT_EQ(fake_cuda().locked, 0u);
  }

  static std::unique_ptr<Device> make_gpu(std::size_t number, Bytes budget) {
    return make_cuda_device("cuda:" + std::to_string(number), static_cast<int>(number % 2), budget);
  }
  void compute_on_streams(RealRun& run) {
    run.runner.compute = [this](const OpCall& call) {
      if (!call.device->compute().stream()) return CheckingRunner::touch(call);
      launch(call.device->compute().stream(), [this, call = seen_by_kernel(call)] {
        try {
          CheckingRunner::touch(call);
        } catch (const std::exception& error) {
          const MutexLock lock(mutex_);
          wrong_.emplace_back(error.what());
        }
      });
    };
  }
  static OpCall seen_by_kernel(OpCall call) {
    for (auto& [number, memory] : call.buffers) memory = testing::seen_by_kernel(memory);
    return call;
  }
  /// The number of times that GPU 0 was lost, if all devices but the first are on GPU 1.
  int lose_gpu(std::uint64_t seed, std::function<void(const OpCall&)> before_op) {
    auto workload = make_workload(seed);
    auto& budgets = workload.config.device_budgets;
    if (budgets.size() == 1) budgets.push_back(budgets.front());
    const auto make = [](std::size_t number, Bytes budget) {
      return make_gpu(number == 0 ? 0 : 1, budget);
    };
    std::size_t lost = 0;
    {
      RealRun run(make, std::move(workload));
      compute_on_streams(run);
      run.runner.before_op = std::move(before_op);
      run.run_all();
      run.expect_all_done();
      for (const auto& left : run.heard.left) {
        EXPECT_EQ(left.device, DeviceId(0));
        EXPECT_TRUE(left.lost);
        EXPECT_EQ(left.why, "an illegal memory access");
      }
      fake_cuda().broken[0] = cudaSuccess;
      lost = run.heard.left.size();
    }
    fake_cuda().locked = 0;  // memory that a failed GPU had locked cannot be unlocked
    return static_cast<int>(lost);
  }

  Mutex mutex_;
  std::vector<std::string> wrong_;  // the errors of ops that found wrong bytes
};

TEST_F(ShellOnGpus, MovesEveryByteOfRandomWorkloads) {
  for_seeds(30, [&](std::uint64_t seed) {
    RealRun run(make_gpu, make_workload(seed));
    compute_on_streams(run);
    run.run_all();
    run.expect_all_done();
    EXPECT_EQ(run.runner.ops(), run.planned_ops());
    EXPECT_EQ(wrong_, std::vector<std::string>{});
  });
}

TEST_F(ShellOnGpus, DiscardsWorkOfAGpuThatFailsInAnOp) {
  int lost = 0;
  for_seeds(20, [&](std::uint64_t seed) {
    std::atomic<std::uint64_t> ops = 0;
    lost += lose_gpu(seed, [&, seed](const OpCall& call) {
      if (call.device->gpu() != 0 || ++ops != 1 + seed % 13) return;
      fake_cuda().broken[0] = cudaErrorIllegalAddress;
    });
  });
  EXPECT_GE(lost, 15);
}

TEST_F(ShellOnGpus, DiscardsWorkOfAGpuThatFailsInACopy) {
  int lost = 0;
  for_seeds(60, [&](std::uint64_t seed) {
    fake_cuda().copies_left = static_cast<int>(1 + seed * 7 % 60);
    lost += lose_gpu(seed, {});
    fake_cuda().copies_left = -1;
  });
  EXPECT_GE(lost, 40);
}

}  // namespace
}  // namespace spillway::testing
