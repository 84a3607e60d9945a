#include <sys/resource.h>

#include "tests/conformance/abandon_conformance.h"
#include "tests/support/check/thrown.h"
#include "tests/support/gpu/fake_cudart.h"

/// The device body for GPUs over a runtime that needs no GPU.
namespace spillway {
namespace {

using testing::fake_cuda;
using testing::HeldStream;
using testing::thrown;

std::unique_ptr<Device> make_fake(Bytes budget) { return make_cuda_device("cuda:0", 1, budget); }

INSTANTIATE_TEST_SUITE_P(FakeCuda, DeviceConformance,
                         ::testing::Values(DeviceCase{"cuda", make_fake}),
                         [](const auto& test) { return test.param.name; });

/// Each test has a working machine, and leaves nothing behind on it.
class FakeGpu : public ::testing::Test {
 protected:
  ~FakeGpu() override {
    EXPECT_EQ(machine_.taken, 0u);
    EXPECT_EQ(machine_.locked, 0u);
    EXPECT_EQ(machine_.streams, 0);
    EXPECT_EQ(machine_.events, 0);
    EXPECT_EQ(machine_.on_no_gpu, 0);
    EXPECT_EQ(machine_.on_no_stream, 0);
    EXPECT_EQ(machine_.spinning, 0);
  }
  /// The refusal of a device of 1 MiB on that GPU.
  static ConfigError refusal(int gpu) {
    return thrown<ConfigError>([&] { make_cuda_device("cuda:0", gpu, 1_MiB); });
  }
  template <typename T>
  struct Changed {  // for a scope
    Changed(std::atomic<T>& what, T value) : what_(what), before_(what.exchange(value)) {}
    ~Changed() { what_ = before_; }
    std::atomic<T>& what_;
    const T before_;
  };

  testing::FakeCuda& machine_ = fake_cuda();
};

TEST_F(FakeGpu, DescribesItself) {
  const auto device = make_fake(1_MiB);
  EXPECT_EQ(device->name(), "cuda:0");
  EXPECT_EQ(device->kind(), "cuda");
  EXPECT_NE(device->compute().stream(), nullptr);
  EXPECT_NE(device->compute().stream(), device->host_to_device().stream());
}

/// Negative control: a host access must end the test.
TEST_F(FakeGpu, NeverTouchesDeviceMemoryFromTheHost) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(*make_fake(1_MiB)->allocate(kPage)->data() = std::byte{1}, "");
}

TEST_F(FakeGpu, EnablesPeerAccessOnce) {
  for (int round = 0; round < 2; ++round) {
    for (const int gpu : {0, 1, 1}) make_cuda_device("cuda", gpu, 1_MiB);
    EXPECT_EQ(machine_.connections, 2);
  }
}

TEST_F(FakeGpu, ListsGpusByIndex) {
  const Changed alike(machine_.alike, false);
  const auto device = make_cuda_device("cuda:0", 1, 1_MiB - kPage);
  const GpuList list = list_gpus();
  ASSERT_EQ(list.gpus.size(), 2u);
  EXPECT_EQ(list.gpus[0].name, "A");
  EXPECT_EQ(list.gpus[1].name, "B");
  EXPECT_EQ(list.gpus[1].memory, 1_GiB);
  EXPECT_EQ(list.gpus[1].free, 1_GiB - 1_MiB);
  EXPECT_EQ(list.why_none, "");
}

TEST_F(FakeGpu, ListsNoDeviceWithoutADriver) {
  const Changed found(machine_.found, cudaErrorInsufficientDriver);
  const Changed driver(machine_.driver, 0);
  EXPECT_EQ(list_gpus().gpus.size(), 0u);
  EXPECT_EQ(list_gpus().why_none,
            "this machine has no NVIDIA driver; install one that supports CUDA 13.0");
  const ConfigError error = refusal(0);
  EXPECT_EQ(error.field, "kind");
  EXPECT_EQ(error.problem,
            "is cuda, but this machine has no NVIDIA driver; install one that supports CUDA 13.0, "
            "or use kind: cpu");
}

TEST_F(FakeGpu, ReportsTheVersionOfATooOldDriver) {
  const Changed found(machine_.found, cudaErrorInsufficientDriver);
  const Changed driver(machine_.driver, 12020);
  const ConfigError error = refusal(0);
  EXPECT_EQ(error.field, "kind");
  EXPECT_EQ(error.problem,
            "is cuda, but the NVIDIA driver supports CUDA 12.2 and this build needs 13.0; update "
            "the driver, or use kind: cpu");
}

TEST_F(FakeGpu, ReportsADriverWithoutGpu) {
  const Changed found(machine_.found, cudaErrorNoDevice);
  EXPECT_NE(refusal(0).problem.find("the NVIDIA driver shows no GPU"), std::string::npos);
}

TEST_F(FakeGpu, ReportsOtherDriverErrorsVerbatim) {
  const Changed found(machine_.found, cudaErrorSystemNotReady);
  EXPECT_NE(refusal(0).problem.find("GPUs do not work here: an error of CUDA"), std::string::npos);
}

TEST_F(FakeGpu, RefusesAnUnknownIndex) {
  for (const int gpu : {2, -1}) {
    const ConfigError error = refusal(gpu);
    EXPECT_EQ(error.field, "index");
    EXPECT_EQ(error.problem, "is " + std::to_string(gpu) + ", but GPUs are numbered from 0 to 1");
  }
  const Changed one(machine_.num_gpus, 1);
  EXPECT_EQ(refusal(3).problem, "is 3, but there is one GPU, number 0");
}

TEST_F(FakeGpu, RefusesAnUnsupportedArchitecture) {
  const Changed old(machine_.capability, 75);
  const ConfigError error = refusal(1);
  EXPECT_EQ(error.field, "index");
  EXPECT_EQ(error.problem,
            "GPU 1 has compute capability 7.5, and this build has no code for it; use another, or "
            "use kind: cpu");
}

TEST_F(FakeGpu, RefusesABudgetAboveTheFreeMemory) {
  const auto other = make_cuda_device("cuda:0", 0, 768_MiB - kPage);
  const ConfigError error = thrown<ConfigError>([] { make_cuda_device("cuda:1", 0, 256_MiB + 1); });
  EXPECT_EQ(error.field, "memory");
  EXPECT_EQ(error.problem,
            "is 256.0 MiB, but 256.0 MiB are free on GPU 0; lower it, or stop other programs that "
            "use the GPU");
}

TEST_F(FakeGpu, RefusesAFragmentedBudget) {
  const Changed fragmented(machine_.fragmented, true);
  const ConfigError error = refusal(1);
  EXPECT_EQ(error.field, "memory");
  EXPECT_EQ(
      error.problem,
      "is 1.00 MiB, and GPU 1 has 1.00 GiB free, but no contiguous block of that size; lower it");
}

TEST_F(FakeGpu, ReportsUnlockableHostMemory) {
  const auto device = make_fake(1_MiB);
  const Changed lockable(machine_.lockable, cudaErrorMemoryAllocation);
  rlimit limit{}, low{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  low = {.rlim_cur = 8_KiB, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  const auto error = thrown<ConfigError>([&] { device->allocate_host(1_MiB); });
  EXPECT_EQ(error.field, "host_memory");
  EXPECT_EQ(error.problem,
            "1.00 MiB cannot be page-locked for cuda:0: an error of CUDA; this process may lock "
            "8.00 KiB, raise that limit (ulimit -l), or write less");
  EXPECT_EQ(thrown<OutOfMemory>([&] { device->allocate_host(4_KiB); }).tier, Tier::host)
      << "the limit is no reason";
  setrlimit(RLIMIT_MEMLOCK, &limit);
}

TEST_F(FakeGpu, RefusesTooMuchHostMemoryUntouched) {
  const auto device = make_fake(1_MiB);
  const auto error = thrown<OutOfMemory>([&] { device->allocate_host(1_GiB << 20); });
  EXPECT_EQ(error.tier, Tier::host);
  EXPECT_GT(error.available, 0u);
  EXPECT_LT(error.available, error.requested);
}

TEST_F(FakeGpu, ZeroesHostMemoryToItsEnd) {
  const auto device = make_fake(1_MiB);
  const auto home = device->allocate_host(40_MiB + 1);
  EXPECT_TRUE(std::all_of(home->data(), home->data() + home->size(),
                          [](std::byte b) { return b == std::byte{0}; }));
}

/// Dependent work needs no host round trip: the thread enqueues it on the stream ahead.
TEST_F(FakeGpu, FeedsItsStreamAhead) {
  const auto device = make_fake(1_MiB);
  const auto memory = device->allocate(kPage);
  Queue &compute = device->compute(), &h2d = device->host_to_device();
  std::promise<void> ahead;
  Event loaded, computed;
  {
    const HeldStream held(h2d.stream());
    h2d.copy_async(memory->data(), memory->data() + 64, 64);
    loaded = h2d.record();
    compute.wait(loaded);
    compute.enqueue([&] { ahead.set_value(); });
    computed = compute.record();
    ahead.get_future().get();
    EXPECT_FALSE(loaded.done());
    EXPECT_FALSE(computed.done());
  }
  computed.wait();
  loaded.wait();
}

TEST_F(FakeGpu, NotifiesAtTheStreamsPosition) {
  const auto device = make_fake(1_MiB);
  std::promise<void> ahead, notified;
  auto heard = notified.get_future();
  {
    const HeldStream held(device->compute().stream());
    device->compute().notify([&] { notified.set_value(); });
    device->compute().enqueue([&] { ahead.set_value(); });
    ahead.get_future().get();
    EXPECT_EQ(heard.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  }
  heard.get();
}

/// Waiting copies have not started: work that hangs in another stream does not block the thread
/// that abandons the device.
TEST_F(FakeGpu, AbandonsWithoutDependenciesOfCopies) {
  for (int round = 0; round < 20; ++round) {
    const auto device = make_fake(1_MiB);
    const auto memory = device->allocate(kPage);
    const auto home = device->allocate_host(kPage);
    Queue &compute = device->compute(), &d2h = device->device_to_host();
    {
      const HeldStream held(compute.stream());
      compute.copy_async(memory->data(), home->data() + 64, 64);
      d2h.wait(compute.record());
      d2h.copy_async(home->data(), memory->data(), 64);
      burn_cpu(0.001);
      device->abandon();
      finish(d2h);
    }
    finish(compute);
  }
}

TEST_F(FakeGpu, AbandonsAfterCopiesInTheStream) {
  const auto device = make_fake(1_MiB);
  const auto home = device->allocate_host(kPage);
  home->data()[0] = std::byte{1};
  Queue& d2h = device->device_to_host();
  std::promise<void> given;
  std::atomic<bool> abandoned = false;
  std::jthread other;
  {
    const HeldStream held(d2h.stream());
    d2h.copy_async(home->data() + 64, home->data(), 64);
    d2h.enqueue([&] { given.set_value(); });
    given.get_future().get();
    other = std::jthread([&] {
      device->abandon();
      abandoned = true;
    });
    burn_cpu(0.02);
    EXPECT_FALSE(abandoned);
  }
  other.join();
  EXPECT_EQ(home->data()[64], std::byte{1});
}

/// A GPU reports failures late, so nothing that ended meanwhile counts.
TEST_F(FakeGpu, ReportsAFailureBeforeCompletions) {
  const auto device = make_fake(1_MiB);
  const auto memory = device->allocate(kPage);
  EXPECT_NO_THROW(device->check());
  std::promise<bool> lost;
  Event event;
  const auto broken = [&] {
    const HeldStream held(device->compute().stream());
    device->compute().copy_async(memory->data(), memory->data() + 64, 64);
    event = device->compute().record();
    device->compute().notify([&] {
      try {
        device->check();
        lost.set_value(false);
      } catch (const DeviceLost&) {
        lost.set_value(true);
      }
    });
    return std::make_unique<Changed<cudaError_t>>(machine_.broken[1], cudaErrorIllegalAddress);
  }();
  event.wait();
  EXPECT_TRUE(lost.get_future().get());
  EXPECT_STREQ(thrown<DeviceLost>([&] { device->begin_op(); }).what(),
               "device cuda:0 is lost: an illegal memory access");
  device->abandon();
  finish(device->host_to_device());
}

TEST_F(FakeGpu, CompletesWorkOfAFailedGpu) {
  const auto device = make_fake(1_MiB);
  const auto memory = device->allocate(kPage);
  const Changed broken(machine_.broken[1], cudaErrorIllegalAddress);
  device->compute().wait(device->host_to_device().record());
  device->compute().copy_async(memory->data(), memory->data() + 64, 64);
  std::promise<void> notified;
  device->compute().notify([&] { notified.set_value(); });
  notified.get_future().get();
  finish(device->compute());
  EXPECT_THROW(device->check(), DeviceLost);
}

}  // namespace
}  // namespace spillway
