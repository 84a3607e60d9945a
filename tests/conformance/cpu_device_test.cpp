#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/conformance/abandon_conformance.h"
#include "tests/support/check/measured.h"
#include "tests/support/check/resident.h"

namespace spillway {
namespace {

using testing::holds_once_in_ten;
using testing::resident_bytes;

std::unique_ptr<Device> make_cpu(Bytes budget) { return make_cpu_device("cpu:0", budget); }

std::unique_ptr<Device> make_linked(Bytes budget) {
  return make_cpu_device("cpu:0", budget, {.link_bytes_per_s = 100_MiB});
}

std::unique_ptr<Device> make_slow(Bytes budget) {
  return make_cpu_device("cpu:0", budget, {.slowdown = 3});
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
                         ::testing::Values(DeviceCase{"cpu", make_cpu},
                                           DeviceCase{"cpu_with_link", make_linked},
                                           DeviceCase{"cpu_slowed", make_slow}),
                         [](const auto& test) { return test.param.name; });

TEST(CpuDevice, DescribesItself) {
  const auto device = make_cpu_device("cpu:7", 0, {.link_bytes_per_s = 5_MiB, .slowdown = 2});
  EXPECT_EQ(device->name(), "cpu:7");
  EXPECT_EQ(device->kind(), "cpu");
  EXPECT_EQ(device->link_bytes_per_s(), 5_MiB);
  EXPECT_EQ(device->slowdown(), 2);
}

TEST(CpuDevice, TakesMemoryOnlyWhenTouched) {
  const auto device = make_cpu(64_GiB);
  const Bytes before = resident_bytes();
  const auto memory = device->allocate(64_GiB);
  memory->data()[63_GiB] = std::byte{1};
  EXPECT_LT(resident_bytes(), before + 16_MiB);
}

TEST(CpuDevice, ReturnsMemoryToTheSystem) {
  const auto device = make_cpu(64_MiB);
  auto memory = device->allocate(64_MiB);
  std::fill_n(memory->data(), 64_MiB, std::byte{1});
  const Bytes with = resident_bytes();
  memory.reset();
  EXPECT_LT(resident_bytes(), with - 48_MiB);
}

TEST(CpuDevice, RefusesImpossibleHostMemory) {
  const auto device = make_cpu(0);
  for (const Bytes bytes : {Bytes{1} << 60, ~Bytes{0}}) {
    const OutOfMemory e = out_of_memory([&] { device->allocate_host(bytes); });
    EXPECT_EQ(e.tier, Tier::host);
    EXPECT_EQ(e.requested, bytes);
    EXPECT_GT(e.available, 0u);
  }
}

TEST(CpuDevice, TakesNothingFromTheBudgetIfTheSystemRefuses) {
  constexpr Bytes kHuge = Bytes{1} << 60;
  const auto device = make_cpu(kHuge);
  out_of_memory([&] { device->allocate(kHuge); });
  const auto page = device->allocate(kPage);
  EXPECT_EQ(out_of_memory([&] { device->allocate(kHuge); }).available, kHuge - kPage);
}

TEST(CpuDevice, NamesTheDeviceInErrors) {
  const auto device = make_cpu_device("cpu:7", 1_MiB);
  const OutOfMemory e = out_of_memory([&] { device->allocate(2_MiB); });
  EXPECT_NE(std::string(e.what()).find("cpu:7"), std::string::npos) << e.what();
}

/// Copies over a link of 100 MiB/s.
class HostLink : public ::testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;
  /// Copies `size` bytes `times` times over each queue; returns the seconds until all have arrived.
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

TEST_F(HostLink, LimitsALargeCopy) {
  EXPECT_GE(copy_s(20_MiB, 1, {&h2d_}), 0.2);
  EXPECT_EQ(to_, from_);
}

TEST_F(HostLink, LimitsManySmallCopies) { EXPECT_GE(copy_s(16_KiB, 1280, {&d2h_}), 0.2); }

TEST_F(HostLink, EarnsNoCreditWhileIdle) {
  copy_s(1_MiB, 1, {&h2d_});
  burn_cpu(0.05);
  EXPECT_GE(copy_s(10_MiB, 1, {&h2d_}), 0.1);
}

TEST_F(HostLink, LimitsACopyAfterAnEvent) {
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

TEST_F(HostLink, LimitsCopiesFromDevicesToo) {
  Queue& d2d = device_->from_devices();
  EXPECT_GE(copy_s(10_MiB, 1, {&h2d_, &d2d}), 0.2) << "one link";
}

TEST(Links, LimitCopiesOverThem) {
  using Clock = std::chrono::steady_clock;
  const auto device = make_cpu(kPage);
  const std::vector<std::byte> from = pattern(10_MiB, 1);
  std::vector<std::byte> to(10_MiB);
  Link link(100 << 20, 0.1);
  const auto begin = Clock::now();
  device->from_devices().copy_over(link, to.data(), from.data(), 10_MiB);
  finish(device->from_devices());
  EXPECT_GE(std::chrono::duration<double>(Clock::now() - begin).count(), 0.2);
  EXPECT_EQ(to, from);
}

TEST(Links, AreTakenInTurns) {
  const Link::Clock::time_point start{};
  const auto after = [&](double seconds) {
    return start + std::chrono::duration_cast<Link::Clock::duration>(
                       std::chrono::duration<double>(seconds));
  };
  Link link(1000, 0.5);
  EXPECT_EQ(link.take(1000, start).arrives, after(1.5));
  EXPECT_EQ(link.take(2000, start).arrives, after(3.5));
  EXPECT_EQ(link.take(1000, after(10)).arrives, after(11.5)) << "no credit for idle time";
}

TEST(Links, LetSomeCopiesGoFirst) {
  const Link::Clock::time_point start{};
  const auto after = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  Link link(1000);
  const Link::Passage first = link.take(4000, start), second = link.take(1000, start);
  EXPECT_EQ(link.arrival(first), after(4));
  EXPECT_EQ(link.overtake(1000, after(1)).arrives, after(2)) << "not behind the others";
  EXPECT_EQ(link.overtake(2000, after(1)).arrives, after(4)) << "behind the last like it";
  EXPECT_EQ(link.arrival(first), after(7));
  EXPECT_EQ(link.arrival(second), after(8));
  EXPECT_EQ(link.take(1000, start).arrives, after(9));
  EXPECT_EQ(link.overtake(1000, after(20)).arrives, after(21));
  EXPECT_EQ(link.take(1000, after(20)).arrives, after(22)) << "one at a time";
}

/// A link over which a page takes an hour; a test abandons the device.
class SlowLink : public ::testing::Test {
 protected:
  ~SlowLink() override {
    device_->abandon();
    finish(h2d_);
  }
  const std::unique_ptr<Device> device_ = make_cpu_device("cpu:0", kPage, {.link_bytes_per_s = 1});
  Queue& h2d_ = device_->host_to_device();
  /// A byte on the other queue arrives while a page is on its way to the device.
  void expect_not_held_up(Queue& other) {
    h2d_.copy_async(to_.data(), from_.data(), kPage);
    const Event copied = h2d_.record();
    std::byte byte{};
    other.copy_async(&byte, from_.data(), 1);
    finish(other);
    EXPECT_FALSE(copied.done());
  }
  const std::vector<std::byte> from_ = pattern(kPage, 1);
  std::vector<std::byte> to_ = std::vector<std::byte>(kPage);
};

TEST_F(SlowLink, SleepsDuringACopyUntilItIsAbandoned) {
  const pid_t thread = thread_of(h2d_);
  h2d_.copy_async(to_.data(), from_.data(), kPage);
  const Event copied = h2d_.record();
  testing::expect_asleep(thread);
  EXPECT_FALSE(copied.done());
}

TEST_F(SlowLink, LimitsDirectionsSeparately) { expect_not_held_up(device_->device_to_host()); }

TEST_F(SlowLink, LetsCopiesFromDevicesGoFirst) { expect_not_held_up(device_->from_devices()); }

TEST(Slowdown, MultipliesCpuTime) {
  using Clock = std::chrono::steady_clock;
  const auto device = make_cpu_device("cpu:0", kPage, {.slowdown = 4});
  const auto begin = Clock::now();
  for (int i = 0; i < 20; ++i) device->compute().enqueue([] { burn_cpu(0.002); });
  finish(device->compute());
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_GE(seconds, 3.9 * 20 * 0.002);
  EXPECT_EQ(device->slowdown(), 4);
}

TEST(Slowdown, CountsTheTimeInWhichWorkWaits) {
  using Clock = std::chrono::steady_clock;
  const auto device = make_cpu_device("cpu:0", kPage, {.slowdown = 10});
  EXPECT_TRUE(holds_once_in_ten([&] {
    const auto begin = Clock::now();
    device->compute().enqueue([] {
      burn_cpu(0.01);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    });
    finish(device->compute());
    return Clock::now() - begin < std::chrono::milliseconds(160);
  })) << "it takes 110 ms, and 200 if it sleeps besides";
}

TEST(Slowdown, SleepsInsteadOfComputing) {
  const auto device = make_cpu_device("cpu:0", kPage, {.slowdown = 1000});
  const pid_t thread = thread_of(device->compute());
  device->compute().enqueue([] { burn_cpu(0.01); });
  const Event computed = device->compute().record();
  testing::expect_asleep(thread);
  EXPECT_FALSE(computed.done());
  device->abandon();
}

std::unique_ptr<Device> make_faulty(DeviceFault::Kind kind, std::uint64_t after_ops) {
  return make_cpu_device("cpu:3", 64_KiB, {.fault = {kind, after_ops}});
}

TEST(Fault, FailsFromTheChosenOpOn) {
  const auto device = make_faulty(DeviceFault::Kind::fail, 2);
  device->begin_op();
  device->begin_op();
  for (int i = 0; i < 2; ++i) {
    try {
      device->begin_op();
      ADD_FAILURE() << "a device that is to fail does not";
    } catch (const DeviceLost& lost) {
      EXPECT_EQ(lost.device, "cpu:3");
      EXPECT_STREQ(lost.what(), "device cpu:3 is lost: simulated failure after 2 ops");
    }
  }
}

TEST(Fault, HangsUntilAbandoned) {
  const auto device = make_faulty(DeviceFault::Kind::hang, 1);
  std::promise<void> first;
  std::promise<bool> lost;
  device->compute().enqueue([&] { device->begin_op(), first.set_value(); });
  device->compute().enqueue([&] {
    try {
      device->begin_op();
      lost.set_value(false);
    } catch (const DeviceLost&) {
      lost.set_value(true);
    }
  });
  first.get_future().get();
  auto answer = lost.get_future();
  burn_cpu(0.02);
  EXPECT_EQ(answer.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  device->abandon();
  EXPECT_EQ(answer.get(), true);
}

TEST(Fault, ShrinksOnceToHalfAndTakesNothingBack) {
  const auto device = make_faulty(DeviceFault::Kind::shrink, 1);
  auto held = device->allocate(64_KiB);
  device->begin_op();
  EXPECT_EQ(device->budget(), 64_KiB);
  for (int i = 0; i < 3; ++i) device->begin_op();
  EXPECT_EQ(device->budget(), 32_KiB);
  std::fill_n(held->data(), 64_KiB, std::byte{1});
  EXPECT_EQ(out_of_memory([&] { device->allocate(1); }).available, 0u);
  held.reset();
  EXPECT_EQ(out_of_memory([&] { device->allocate(32_KiB + 1); }).available, 32_KiB);
  EXPECT_EQ(device->allocate(32_KiB)->size(), 32_KiB);
}

}  // namespace
}  // namespace spillway
