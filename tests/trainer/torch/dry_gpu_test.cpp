#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>
#include <string>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/gpu/dry_cuda.h"
#include "tests/support/gpu/fake_cudart.h"
#include "tests/support/gpu/torch_on_gpu.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/run/training_run.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/kernel_flags.h"
#include "trainer/torch/torch_gpu.h"

/// What LibTorch's GPU code does in a session.
namespace spillway::testing {
namespace {

/// Operands of products that are less aligned than every tensor.
int misaligned() {
  const auto& alignments = dry_cuda().alignments;
  return std::accumulate(alignments.begin(), alignments.begin() + kAlignment, 0);
}

/// What LibTorch's own allocator has given out on the first GPU.
std::int64_t allocated_by_process() {
  using enum c10::CachingAllocator::StatType;
  return c10::getDeviceAllocator(c10::DeviceType::CUDA)
      ->getDeviceStats(0)
      .requested_bytes[static_cast<std::size_t>(AGGREGATE)]
      .current;
}

constexpr std::int64_t kUserElements = 1000;

class DryGpu : public ::testing::Test {
 protected:
  /// The process has used the GPU before any session.
  static void SetUpTestSuite() {
    initialize_torch();
    user_tensor_ = at::ones({kUserElements}, at::TensorOptions(torch_device(0)));
  }

  /// No call synchronizes, none uses the default stream, and operands are aligned.
  static void expect_good_run(const TrialConfig& trial, Bytes memory) {
    Session session(gpus(2, memory));
    session.submit(trial);
    const int waits = fake_cuda().waits, kernels = dry_cuda().kernels,
              on_no_stream = fake_cuda().on_no_stream;
    session.run();
    const RunResult result = session.result();
    EXPECT_EQ(result.trials[0].state, TrialState::done) << result.trials[0].reason;
    EXPECT_GT(dry_cuda().kernels - kernels, 1000);
    EXPECT_EQ(fake_cuda().waits, waits);
    EXPECT_EQ(fake_cuda().on_no_stream, on_no_stream);
    EXPECT_EQ(misaligned(), 0);
    expect_within_budgets(result);
  }

  static at::Tensor user_tensor_;
};
at::Tensor DryGpu::user_tensor_;

TEST_F(DryGpu, NeverSynchronizesForAGpt) {
  for (const FloatType dtype : {FloatType::fp32, FloatType::bf16}) {
    SCOPED_TRACE(to_string(dtype));
    TrialConfig trial = with_lanes(tiny_trial(), {5, 3});
    trial.train.dtype = trial.train.gradient_dtype = dtype;
    trial.train.order = OrderChoice::shard_major;
    const int products = dry_cuda().products, told = dry_cuda().alignments[kAlignment];
    expect_good_run(trial, 6_MiB);
    EXPECT_GT(dry_cuda().products - products, 1000);
    EXPECT_GT(dry_cuda().alignments[kAlignment] - told, 1000);
  }
}

/// Convolutions by LibTorch's own kernels: cuDNN needs a GPU.
TEST_F(DryGpu, NeverSynchronizesForOtherModels) {
  at::globalContext().setUserEnabledCuDNN(false);
  expect_good_run(resnet_trial(), 4_MiB);
  for (const SmallNet& net : small_nets()) {
    SCOPED_TRACE(net.name);
    expect_good_run(net_trial(net), 4_MiB);
  }
}

/// Sessions and the process use one GPU, each with its own memory.
TEST_F(DryGpu, LeavesTheAllocatorOfTheProcess) {
  const at::TensorOptions here(torch_device(0));
  on_gpu([&](const at::TensorOptions&) {});  // workspaces of the first product
  const std::int64_t allocated = allocated_by_process();
  const at::Tensor users = at::ones({kUserElements}, here);
  EXPECT_EQ(allocated_by_process(), allocated + kUserElements * 4);
  on_gpu([&](const at::TensorOptions& on_own_thread) {
    const at::Tensor own = at::ones({kUserElements}, on_own_thread);
    EXPECT_EQ(allocated_by_process(), allocated + kUserElements * 4);
  });
  user_tensor_.reset();  // older than the first session
  EXPECT_EQ(allocated_by_process(), allocated);
}

TEST_F(DryGpu, GivesAllMemoryBack) {
  const auto train = [] {
    Session session(gpus(2, 6_MiB));
    session.submit(tiny_trial());
    session.run();
    EXPECT_GE(fake_cuda().taken, 12_MiB);
  };
  train();
  const Bytes taken = fake_cuda().taken;
  train();
  EXPECT_EQ(fake_cuda().taken, taken);
}

TEST_F(DryGpu, LeavesTheFlagsOfTheProcess) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(true);
  const KernelFlags before = kernel_flags(/*on_gpus=*/true);
  {
    const Session session(gpus(1, 6_MiB)), other(gpus(1, 6_MiB));
    EXPECT_TRUE(context.deterministicAlgorithms());
    EXPECT_FALSE(context.allowTF32CuBLAS());
  }
  EXPECT_EQ(difference(before, kernel_flags(/*on_gpus=*/true)), "");
  EXPECT_TRUE(context.allowTF32CuBLAS());
  {
    const Session session(gpus(1, 6_MiB));
    context.setBenchmarkCuDNN(true);  // by the process, so it stays
  }
  EXPECT_TRUE(context.benchmarkCuDNN());
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuBLAS(false);
  context.setDeterministicAlgorithms(false, false);
}

/// The backward of flash attention takes more memory than such small layers suggest.
TEST_F(DryGpu, NamesALayerThatIsTooLarge) {
  TrialConfig trial = tiny_trial();
  trial.train.dtype = FloatType::bf16;
  Session session(gpus(2, 2_MiB));
  const auto refusal = thrown<DoesNotFit>([&] { session.submit(trial); });
  EXPECT_EQ(std::string(refusal.what()).find("layer h.0.attn alone does not fit: it needs "), 0u)
      << refusal.what();
  EXPECT_GT(refusal.needed, 2_MiB);
  EXPECT_TRUE(std::string(refusal.what()).ends_with("; or raise activation_share"))
      << refusal.what();
}

/// Two linear layers with pooling between them, whose gradients a GPU adds in varying order.
torch::nn::Sequential pooling_net() {
  using namespace torch::nn;
  return Sequential(Linear(8, 8), AdaptiveAvgPool2d(2), Flatten(), Linear(4, 10));
}

TEST_F(DryGpu, NamesANondeterministicOperation) {
  Session session(gpus(2, 2_MiB));
  const TrialConfig trial = net_trial({"pooling", &pooling_net, {.input_shape = {1, 8, 8}}});
  const auto refusal = thrown<Error>([&] { session.submit(trial); });
  EXPECT_STREQ(refusal.what(),
               "layer 1: adaptive_avg_pool2d_backward_cuda has no deterministic implementation in "
               "LibTorch on this kind of device; use another operation");
}

// Negative controls of the counters.

TEST_F(DryGpu, SynchronizesToReadANumber) {
  on_gpu([](const at::TensorOptions& here) {
    const at::Tensor number = at::ones({}, here);
    const int waits = fake_cuda().waits;
    number.item();
    EXPECT_GT(fake_cuda().waits, waits);
  });
}

TEST_F(DryGpu, PassesTheOffsetsOfOperands) {
  on_gpu([](const at::TensorOptions& here) {
    const at::Tensor room = at::ones({16 * 16 + 64}, here), bias = at::ones({16}, here);
    const auto product = [&](std::int64_t begin) {
      at::linear(room.narrow(0, begin, 16 * 16).view({16, 16}), at::ones({16, 16}, here), bias);
    };
    product(0);
    EXPECT_EQ(misaligned(), 0);
    product(16);  // 64 bytes
    EXPECT_EQ(dry_cuda().alignments[64], 1);
    dry_cuda().alignments[64] = 0;
  });
}

}  // namespace
}  // namespace spillway::testing
