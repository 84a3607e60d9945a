#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <vector>

#include "tests/conformance/device_conformance.h"

namespace spillway {
namespace {

std::unique_ptr<Device> make_cpu(Bytes budget) { return make_cpu_device("cpu:0", budget); }

std::unique_ptr<Device> make_linked(Bytes budget) {
  return make_cpu_device("cpu:0", budget, 100_MiB);
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
                         testing::Values(DeviceCase{"cpu", make_cpu},
                                         DeviceCase{"cpu_with_link", make_linked}),
                         [](const auto& test) { return test.param.name; });

Bytes resident_bytes() {
  Bytes total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<Bytes>(sysconf(_SC_PAGESIZE));
}

TEST(CpuDevice, IsOfKindCpu) { EXPECT_EQ(make_cpu(0)->kind(), "cpu"); }

TEST(CpuDevice, AnArenaCostsNoMemoryUntilItIsTouched) {
  const auto device = make_cpu(64_GiB);
  const Bytes before = resident_bytes();
  const auto memory = device->allocate(64_GiB);
  memory->data()[63_GiB] = std::byte{1};
  EXPECT_LT(resident_bytes(), before + 16_MiB);
}

TEST(CpuDevice, MemoryGoesBackToTheSystem) {
  const auto device = make_cpu(64_MiB);
  auto memory = device->allocate(64_MiB);
  std::fill_n(memory->data(), 64_MiB, std::byte{1});
  const Bytes with = resident_bytes();
  memory.reset();
  EXPECT_LT(resident_bytes(), with - 48_MiB);
}

TEST(CpuDevice, HostMemoryThatCannotBeIsRefused) {
  const auto device = make_cpu(0);
  for (const Bytes bytes : {Bytes{1} << 60, ~Bytes{0}}) {
    const OutOfMemory e = out_of_memory([&] { device->allocate_host(bytes); });
    EXPECT_EQ(e.tier, Tier::host);
    EXPECT_EQ(e.requested, bytes);
    EXPECT_GT(e.available, 0u);
  }
}

TEST(CpuDevice, ARefusalByTheSystemTakesNothingFromTheBudget) {
  constexpr Bytes kHuge = Bytes{1} << 60;
  const auto device = make_cpu(kHuge);
  out_of_memory([&] { device->allocate(kHuge); });
  const auto page = device->allocate(kPage);
  EXPECT_EQ(out_of_memory([&] { device->allocate(kHuge); }).available, kHuge - kPage);
}

TEST(CpuDevice, ErrorsNameTheDevice) {
  const auto device = make_cpu_device("cpu:7", 1_MiB);
  const OutOfMemory e = out_of_memory([&] { device->allocate(2_MiB); });
  EXPECT_NE(std::string(e.what()).find("cpu:7"), std::string::npos) << e.what();
}

/// Copies over a link of 100 MiB/s.
class Link : public testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;
  /// Copies `size` bytes `times` times over each queue; seconds until all are there.
  double copy_s(Bytes size, int times, std::vector<Queue*> queues) {
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) {
      Bytes place = 0;
      for (Queue* queue : queues) queue->copy_async(&to_[size * place++], from_.data(), size);
    }
    for (Queue* queue : queues) finish(*queue);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  const std::unique_ptr<Device> device_ = make_linked(kPage);
  Queue& h2d_ = device_->host_to_device();
  Queue& d2h_ = device_->device_to_host();
  const std::vector<std::byte> from_ = pattern(20_MiB, 1);
  std::vector<std::byte> to_ = std::vector<std::byte>(20_MiB);
};

TEST_F(Link, ALargeCopyTakesItsBytesByTheRate) {
  const double seconds = copy_s(20_MiB, 1, {&h2d_});
  EXPECT_GE(seconds, 0.2);
  EXPECT_LT(seconds, 0.3);
  EXPECT_EQ(to_, from_);
}

TEST_F(Link, SmallCopiesTogetherKeepTheRate) {
  const double seconds = copy_s(16_KiB, 1280, {&d2h_});  // 156 us each, a sleep may take 60 more
  EXPECT_GE(seconds, 0.2);
  EXPECT_LT(seconds, 0.25);
}

TEST_F(Link, DirectionsDoNotShareIt) { EXPECT_LT(copy_s(1_MiB, 20, {&h2d_, &d2h_}), 0.3); }

TEST_F(Link, AnIdleLinkSavesNothingUp) {
  copy_s(1_MiB, 1, {&h2d_});
  burn_cpu(0.05);
  EXPECT_GE(copy_s(10_MiB, 1, {&h2d_}), 0.1);
}

TEST_F(Link, ACopyThatWaitedForAnEventTakesAsLong) {
  Gate gate;
  device_->compute().enqueue(gate.work());
  h2d_.wait(device_->compute().record());
  h2d_.copy_async(to_.data(), from_.data(), 10_MiB);
  burn_cpu(0.05);
  const auto begin = Clock::now();
  gate.open();
  finish(h2d_);
  EXPECT_GE(std::chrono::duration<double>(Clock::now() - begin).count(), 0.1);
}

TEST_F(Link, ACopySleeps) {
  rusage before{}, after{};
  h2d_.enqueue([&] { before = thread_usage(); });
  h2d_.copy_async(to_.data(), from_.data(), 20_MiB);
  h2d_.enqueue([&] { after = thread_usage(); });
  finish(h2d_);
  EXPECT_LT(cpu_s(after) - cpu_s(before), 0.1);
}

}  // namespace
}  // namespace spillway
