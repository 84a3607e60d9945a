#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/gpu/fake_cudart.h"
#include "tests/support/run/real_run.h"

/// The shell on devices whose threads run ahead of what they compute, as GPUs', without one.
namespace spillway {
namespace {

using testing::CheckingRunner;
using testing::fake_cuda;
using testing::make_workload;
using testing::RealRun;

/// Ops compute on streams, a while after their devices' threads have given them away.
class ShellOnGpus : public ::testing::Test {
 protected:
  ~ShellOnGpus() override {
    EXPECT_EQ(fake_cuda().taken, 0u);
    EXPECT_EQ(fake_cuda().locked, 0u);
    EXPECT_EQ(fake_cuda().streams, 0);
    EXPECT_EQ(fake_cuda().events, 0);
    EXPECT_EQ(fake_cuda().on_no_gpu, 0);
    EXPECT_EQ(fake_cuda().on_no_stream, 0);
    EXPECT_EQ(fake_cuda().spinning, 0);
  }

  static std::unique_ptr<Device> make_gpu(std::size_t number, Bytes budget) {
    return make_cuda_device("cuda:" + std::to_string(number), static_cast<int>(number % 2), budget);
  }
  void compute_on_streams(RealRun& run) {
    run.runner.compute = [this](const OpCall& call) {
      if (!call.device->compute().stream()) return CheckingRunner::touch(call);
      testing::launch(call.device->compute().stream(), [this, call = seen_by_kernel(call)] {
        try {
          CheckingRunner::touch(call);
        } catch (const std::exception& error) {
          const std::lock_guard lock(mutex_);
          wrong_.emplace_back(error.what());
        }
      });
    };
  }
  static OpCall seen_by_kernel(OpCall call) {
    for (auto& [number, memory] : call.buffers) memory = testing::seen_by_kernel(memory);
    return call;
  }
  static void expect_all_done(RealRun& run) {
    for (std::size_t j = 0; j < run.workload.jobs.size(); ++j) {
      EXPECT_EQ(run.heard.ends.at(JobId(j)), JobEnd::done) << run.heard.reasons.at(JobId(j));
      EXPECT_EQ(run.heard.steps[JobId(j)], run.workload.jobs[j]->max_steps);
    }
    EXPECT_EQ(run.host.in_use(), 0u);
  }

  /// How many times GPU 0 was lost, where all devices but the first are on GPU 1.
  int lose_gpu(int seed, std::function<void(const OpCall&)> before_op) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    auto workload = make_workload(static_cast<std::uint64_t>(seed));
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
      run.submit_all();
      run.shell.run();
      expect_all_done(run);
      for (const auto& left : run.heard.left) {
        EXPECT_EQ(left.device, DeviceId(0));
        EXPECT_TRUE(left.lost);
        EXPECT_EQ(left.why, "an illegal memory access");
      }
      fake_cuda().broken[0] = cudaSuccess;
      lost = run.heard.left.size();
    }
    fake_cuda().locked = 0;  // what a GPU that failed had locked, nobody can tell it to unlock
    return static_cast<int>(lost);
  }

  std::mutex mutex_;
  std::vector<std::string> wrong_;  // under mutex_: what ops said of the bytes that they found
};

TEST_F(ShellOnGpus, EveryByteArrivesInRandomWorkloads) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RealRun run(make_gpu, make_workload(seed));
    compute_on_streams(run);
    run.submit_all();
    run.shell.run();
    expect_all_done(run);
    EXPECT_EQ(run.runner.ops(), run.planned_ops());
    EXPECT_EQ(wrong_, std::vector<std::string>{});
    if (HasFailure()) break;
  }
}

TEST_F(ShellOnGpus, AGpuThatFailsInAnOpIsLostAndNothingThatEndedThereCounts) {
  int lost = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    std::atomic<int> ops = 0;
    lost += lose_gpu(seed, [&, seed](const OpCall& call) {
      if (call.device->gpu() != 0 || ++ops != 1 + seed % 13) return;
      fake_cuda().broken[0] = cudaErrorIllegalAddress;
    });
    if (HasFailure()) break;
  }
  EXPECT_GE(lost, 15);
}

TEST_F(ShellOnGpus, AGpuThatFailsInACopyIsLostAndNothingThatEndedThereCounts) {
  int lost = 0;
  for (int seed = 1; seed <= 60; ++seed) {
    fake_cuda().copies_left = 1 + seed * 7 % 60;
    lost += lose_gpu(seed, {});
    fake_cuda().copies_left = -1;
    if (HasFailure()) break;
  }
  EXPECT_GE(lost, 40);
}

}  // namespace
}  // namespace spillway
