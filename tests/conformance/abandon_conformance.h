#pragma once

#include "tests/conformance/device_conformance.h"

/// Contract tests of Device::abandon().
namespace spillway {

/// Running compute continues: nothing waits for it.
TEST_P(DeviceConformance, SkipsUnstartedWorkOfAnAbandonedDevice) {
  const auto memory = device_->allocate(kPage);
  const auto home = device_->allocate_host(kPage);
  std::fill_n(home->data(), kPage, std::byte{1});
  Gate gate;
  std::promise<void> begun;
  std::atomic<bool> ended = false, skipped = true;
  compute_.enqueue([&, work = gate.work()] {
    begun.set_value();
    work();
    ended = true;
  });
  compute_.enqueue([&] { skipped = false; });
  d2h_.wait(compute_.record());
  d2h_.copy_async(home->data(), memory->data(), kPage);
  begun.get_future().get();
  device_->abandon();
  compute_.enqueue([&] { skipped = false; });
  h2d_.enqueue([&] { skipped = false; });
  finish(h2d_);
  finish(d2h_);
  EXPECT_FALSE(ended);
  gate.open();
  finish(compute_);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(skipped);
  EXPECT_EQ(home->data()[0], std::byte{1}) << "a copy that waited is skipped";
}

TEST_P(DeviceConformance, WakesWaitersOfAnAbandonedDevice) {
  const auto other = make();
  Gate gate;
  other->compute().enqueue(gate.work());
  h2d_.wait(other->compute().record());
  const Event event = h2d_.record();
  std::promise<void> notified;
  h2d_.notify([&] { notified.set_value(); });
  EXPECT_FALSE(event.done());
  device_->abandon();
  event.wait();
  notified.get_future().get();
  gate.open();
}

TEST_P(DeviceConformance, StartsNoOpOnAnAbandonedDevice) {
  device_->abandon();
  EXPECT_THROW(device_->begin_op(), DeviceLost);
}

/// While copies are in flight, memory no longer changes once abandon() has returned.
TEST_P(DeviceConformance, MovesNoByteAfterAbandon) {
  constexpr Bytes kBytes = 512_KiB;
  for (int round = 0; round < 10; ++round) {
    const auto device = make();
    const auto memory = device->allocate(kBytes);
    const auto home = device->allocate_host(3 * kBytes);
    const auto a = pattern(kBytes, 1), b = pattern(kBytes, 2);
    std::copy(a.begin(), a.end(), home->data());
    std::copy(b.begin(), b.end(), home->data() + kBytes);
    for (Bytes i = 0; i < 50; ++i) {
      device->device_to_host().copy_async(home->data() + 2 * kBytes, home->data() + i % 2 * kBytes,
                                          kBytes);
    }
    device->abandon();
    const std::vector<std::byte> then(home->data() + 2 * kBytes, home->data() + 3 * kBytes);
    finish(device->device_to_host());
    EXPECT_TRUE(std::equal(then.begin(), then.end(), home->data() + 2 * kBytes));
  }
}

TEST_P(DeviceConformance, AllowsAbandoningTwice) {
  device_->abandon();
  device_->abandon();
  finish(compute_);
}

}  // namespace spillway
