#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <functional>
#include <future>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/device/device.h"
#include "spillway/error.h"
#include "tests/support/check/thread_status.h"

/// Contract tests of Device; each implementation instantiates them in its own file:
///   INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance, testing::Values(DeviceCase{...}), ...);
/// The suite accesses device memory only by copies.
namespace spillway {

struct DeviceCase {
  std::string name;
  std::function<std::unique_ptr<Device>(Bytes budget)> make;
  friend void PrintTo(const DeviceCase& test, std::ostream* out) { *out << test.name; }
};

class DeviceConformance : public ::testing::TestWithParam<DeviceCase> {
 protected:
  std::unique_ptr<Device> make(Bytes budget = 1_MiB) const { return GetParam().make(budget); }
  std::unique_ptr<Device> device_ = make();
  Queue& compute_ = device_->compute();
  Queue& h2d_ = device_->host_to_device();
  Queue& d2h_ = device_->device_to_host();
};

/// Work that keeps a queue busy until it is opened.
class Gate {
 public:
  std::function<void()> work() {
    return [opened = opened_] { opened.wait(); };
  }
  void open() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
};

inline void finish(Queue& queue) { queue.record().wait(); }

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> all(bytes);
  for (std::byte& b : all) b = static_cast<std::byte>((seed = seed * 1664525u + 1013904223u) >> 24);
  return all;
}

template <typename Attempt>
OutOfMemory out_of_memory(const Attempt& attempt) {
  try {
    attempt();
  } catch (const OutOfMemory& e) {
    return e;
  }
  ADD_FAILURE() << "no OutOfMemory";
  return {Tier::disk, 0, 0, "nobody"};
}

TEST_P(DeviceConformance, RunsWorkInOrder) {
  std::vector<int> seen;
  for (int i = 0; i < 1000; ++i) compute_.enqueue([&seen, i] { seen.push_back(i); });
  finish(compute_);
  ASSERT_EQ(seen.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i);
}

TEST_P(DeviceConformance, KeepsTheOrderOfEachEnqueuingThread) {
  std::vector<int> seen[4];
  {
    std::vector<std::jthread> threads;
    for (auto& mine : seen) {
      threads.emplace_back([this, &mine] {
        for (int i = 0; i < 500; ++i) compute_.enqueue([&mine, i] { mine.push_back(i); });
      });
    }
  }
  finish(compute_);
  for (const auto& mine : seen) {
    EXPECT_EQ(mine.size(), 500u);
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
  }
}

TEST_P(DeviceConformance, SignalsAnEventAfterEarlierWork) {
  Gate gate;
  compute_.enqueue(gate.work());
  const Event event = compute_.record();
  EXPECT_FALSE(event.done());
  gate.open();
  event.wait();
  EXPECT_TRUE(event.done());
}

TEST_P(DeviceConformance, SignalsAnEventBeforeLaterWork) {
  Gate gate;
  const Event event = compute_.record();
  compute_.enqueue(gate.work());
  event.wait();
  EXPECT_TRUE(event.done());
  gate.open();
}

TEST_P(DeviceConformance, TreatsTheDefaultEventAsSignalled) {
  const Event event;
  EXPECT_TRUE(event.done());
  event.wait();
  compute_.wait(event);
  finish(compute_);
}

TEST_P(DeviceConformance, WakesAllWaitersOfAnEvent) {
  Gate gate;
  compute_.enqueue(gate.work());
  const Event event = compute_.record();
  std::atomic<int> woken = 0;
  {
    std::vector<std::jthread> waiters;
    for (int i = 0; i < 4; ++i) {
      waiters.emplace_back([&] {
        event.wait();
        ++woken;
      });
    }
    EXPECT_EQ(woken, 0);
    gate.open();
  }
  EXPECT_EQ(woken, 4);
}

TEST_P(DeviceConformance, WaitsForEventsOfOtherQueues) {
  for (int i = 0; i < 200; ++i) {
    Gate gate;
    std::atomic<bool> first = false, second = false, in_order = false;
    h2d_.enqueue(gate.work());
    h2d_.enqueue([&] { first = true; });
    compute_.wait(h2d_.record());
    compute_.enqueue([&] {
      in_order = first.load();
      second = true;
    });
    finish(d2h_);  // the third queue is not blocked
    EXPECT_FALSE(second);
    gate.open();
    finish(compute_);
    EXPECT_TRUE(in_order);
  }
}

TEST_P(DeviceConformance, DoesNotDelayWorkBeforeAWait) {
  Gate gate;
  h2d_.enqueue(gate.work());
  const Event before = compute_.record();
  compute_.wait(h2d_.record());
  before.wait();
  gate.open();
}

TEST_P(DeviceConformance, LetsAQueueWaitForItself) {
  compute_.wait(compute_.record());
  finish(compute_);
}

TEST_P(DeviceConformance, WaitsForEventsOfOtherDevices) {
  const auto other = make();
  Gate gate;
  std::atomic<bool> first = false, in_order = false;
  other->compute().enqueue(gate.work());
  other->compute().enqueue([&] { first = true; });
  compute_.wait(other->compute().record());
  compute_.enqueue([&] { in_order = first.load(); });
  gate.open();
  finish(compute_);
  EXPECT_TRUE(in_order);
}

TEST_P(DeviceConformance, KeepsEventsBeyondTheDevice) {
  auto other = make();
  const Event event = other->compute().record();
  other.reset();
  EXPECT_TRUE(event.done());
  event.wait();
}

TEST_P(DeviceConformance, CopiesFromAnotherDeviceOfItsKind) {
  const auto peer = make();
  const auto there = peer->allocate(64_KiB), here = device_->allocate(64_KiB);
  const auto home = device_->allocate_host(64_KiB), back = device_->allocate_host(64_KiB);
  const auto sent = pattern(64_KiB, 7);
  std::copy(sent.begin(), sent.end(), home->data());
  peer->host_to_device().copy_async(there->data(), home->data(), 64_KiB);
  Queue& d2d = device_->from_devices();
  d2d.wait(peer->host_to_device().record());
  Link link(1e9);
  d2d.copy_async(here->data(), there->data(), 32_KiB);
  d2d.copy_over(link, here->data() + 32_KiB, there->data() + 32_KiB, 32_KiB);
  d2h_.wait(d2d.record());
  d2h_.copy_async(back->data(), here->data(), 64_KiB);
  finish(d2h_);
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), back->data()));
}

TEST_P(DeviceConformance, CopiesExactlyTheGivenBytes) {
  const auto memory = device_->allocate(64_KiB);
  const auto home = device_->allocate_host(64_KiB);
  const auto back = device_->allocate_host(64_KiB);
  for (const std::size_t bytes : {0u, 1u, 63u, 4096u, 65000u}) {
    const auto sent = pattern(64_KiB, static_cast<unsigned>(bytes));
    const auto before = pattern(64_KiB, 1000);
    std::copy(sent.begin(), sent.end(), home->data());
    std::copy(before.begin(), before.end(), back->data());
    h2d_.copy_async(memory->data() + 64, home->data() + 3, bytes);
    d2h_.wait(h2d_.record());
    d2h_.copy_async(back->data() + 5, memory->data() + 64, bytes);
    finish(d2h_);
    auto expected = before;
    std::copy_n(sent.begin() + 3, bytes, expected.begin() + 5);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), back->data())) << bytes;
  }
}

/// A slot that is repeatedly loaded, copied within the device and copied back: only events order
/// the queues, as in double buffering.
TEST_P(DeviceConformance, OrdersAPipelineOfCopiesByEvents) {
  constexpr std::size_t kBytes = 16_KiB, kRounds = 50;
  const auto memory = device_->allocate(2 * kBytes);
  const auto home = device_->allocate_host(kRounds * kBytes);
  const auto back = device_->allocate_host(kRounds * kBytes);
  const auto sent = pattern(kRounds * kBytes, 1);
  std::copy(sent.begin(), sent.end(), home->data());
  Event slot_read, result_read;
  for (std::size_t i = 0; i < kRounds; ++i) {
    h2d_.wait(slot_read);
    h2d_.copy_async(memory->data(), home->data() + i * kBytes, kBytes);
    compute_.wait(h2d_.record());
    compute_.wait(result_read);
    compute_.copy_async(memory->data() + kBytes, memory->data(), kBytes);
    slot_read = compute_.record();
    d2h_.wait(slot_read);
    d2h_.copy_async(back->data() + i * kBytes, memory->data() + kBytes, kBytes);
    result_read = d2h_.record();
  }
  result_read.wait();
  EXPECT_TRUE(std::equal(sent.begin(), sent.end(), back->data()));
}

TEST_P(DeviceConformance, NotifiesFromItsThreadAfterTheWork) {
  Gate gate;
  std::atomic<bool> worked = false;
  std::promise<std::pair<bool, std::thread::id>> notified;
  compute_.enqueue(gate.work());
  compute_.enqueue([&] { worked = true; });
  compute_.notify([&] { notified.set_value({worked.load(), std::this_thread::get_id()}); });
  gate.open();
  const auto [after_work, thread] = notified.get_future().get();
  EXPECT_TRUE(after_work);
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST_P(DeviceConformance, AllowsEnqueuingFromANotification) {
  std::promise<void> done;
  compute_.notify([&] { compute_.enqueue([&] { done.set_value(); }); });
  done.get_future().get();
  finish(compute_);
}

TEST_P(DeviceConformance, DestroysWorkBeforeLaterWorkRuns) {
  auto captured = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = captured;
  bool gone = false;
  compute_.enqueue([captured] {});
  captured.reset();
  compute_.enqueue([&] { gone = watch.expired(); });
  finish(compute_);
  EXPECT_TRUE(gone);
}

TEST_P(DeviceConformance, WaitsForAllWorkInTheDestructor) {
  std::atomic<int> ran = 0;
  auto device = make();
  Gate gate;
  device->host_to_device().enqueue(gate.work());
  device->compute().wait(device->host_to_device().record());
  device->device_to_host().wait(device->compute().record());
  for (int i = 0; i < 100; ++i) {
    device->compute().enqueue([&] { ++ran; });
    device->device_to_host().enqueue([&] { ++ran; });
  }
  gate.open();
  device.reset();
  EXPECT_EQ(ran, 200);
}

TEST_P(DeviceConformance, AllocatesAlignedMemoryOfTheGivenSize) {
  for (const Bytes bytes : {Bytes{0}, Bytes{1}, kPage, kPage + 1, 100_KiB}) {
    for (const auto& memory : {device_->allocate(bytes), device_->allocate_host(bytes)}) {
      EXPECT_EQ(memory->size(), bytes);
      EXPECT_NE(memory->data(), nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % kPage, 0u);
    }
  }
}

TEST_P(DeviceConformance, EnforcesTheBudget) {
  EXPECT_EQ(device_->budget(), 1_MiB);
  auto first = device_->allocate(768_KiB);
  const OutOfMemory e = out_of_memory([&] { device_->allocate(256_KiB + 1); });
  EXPECT_EQ(e.tier, Tier::device);
  EXPECT_EQ(e.requested, 256_KiB + 1);
  EXPECT_EQ(e.available, 256_KiB);
  const auto rest = device_->allocate(256_KiB);
  EXPECT_EQ(out_of_memory([&] { device_->allocate(1); }).available, 0u);
  first.reset();
  EXPECT_EQ(out_of_memory([&] { device_->allocate(~Bytes{0}); }).available, 768_KiB);
  EXPECT_EQ(device_->allocate(768_KiB)->size(), 768_KiB);
}

TEST_P(DeviceConformance, ExcludesHostMemoryFromTheBudget) {
  const auto home = device_->allocate_host(4_MiB);
  EXPECT_EQ(device_->allocate(1_MiB)->size(), 1_MiB);
}

TEST_P(DeviceConformance, KeepsMemoryBeyondTheDevice) {
  auto device = make();
  const auto memory = device->allocate(64_KiB);
  const auto home = device->allocate_host(64_KiB);
  device.reset();
  home->data()[64_KiB - 1] = std::byte{7};
  EXPECT_EQ(home->data()[64_KiB - 1], std::byte{7});
}

TEST_P(DeviceConformance, RefusesChargesBeforeTheFirstOp) {
  EXPECT_EQ(out_of_memory([&] { device_->activations().charge(1); }).available, 0u);
  EXPECT_EQ(device_->activations().in_use(), 0u);
}

TEST_P(DeviceConformance, LimitsActivationsToTheReservation) {
  ActivationMeter& meter = device_->activations();
  meter.begin_op(1000);
  meter.charge(600);
  const OutOfMemory e = out_of_memory([&] { meter.charge(401); });
  EXPECT_EQ(e.tier, Tier::device);
  EXPECT_EQ(e.requested, 401u);
  EXPECT_EQ(e.available, 400u);
  EXPECT_EQ(meter.in_use(), 600u) << "a refused charge is not counted";
  EXPECT_EQ(out_of_memory([&] { meter.charge(~Bytes{0}); }).available, 400u);
  meter.charge(400);
  meter.discharge(1000);
  EXPECT_EQ(meter.in_use(), 0u);
  EXPECT_EQ(meter.peak_since_begin(), 1000u);
}

TEST_P(DeviceConformance, StartsANewOpFromTheBytesInUse) {
  ActivationMeter& meter = device_->activations();
  meter.begin_op(1000);
  meter.charge(900);
  meter.discharge(600);
  EXPECT_EQ(meter.peak_since_begin(), 900u);
  meter.begin_op(200);
  EXPECT_EQ(meter.peak_since_begin(), 300u);
  EXPECT_EQ(out_of_memory([&] { meter.charge(1); }).available, 0u);
  meter.discharge(300);
  meter.charge(200);
  EXPECT_EQ(meter.peak_since_begin(), 300u);
}

TEST_P(DeviceConformance, LimitsAllThreadsToTheReservation) {
  ActivationMeter& meter = device_->activations();
  meter.begin_op(150);
  std::atomic<int> refused = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 2000; ++i) {
          try {
            meter.charge(50);
            meter.discharge(50);
          } catch (const OutOfMemory&) {
            ++refused;
          }
        }
      });
    }
  }
  EXPECT_EQ(meter.in_use(), 0u);
  EXPECT_LE(meter.peak_since_begin(), 150u);
  EXPECT_LT(refused, 8000);
}

TEST_P(DeviceConformance, DischargesFromAnotherThread) {
  ActivationMeter& meter = device_->activations();
  compute_.enqueue([&] {
    meter.begin_op(100);
    meter.charge(100);
  });
  finish(compute_);
  meter.discharge(100);
  EXPECT_EQ(meter.in_use(), 0u);
}

TEST_P(DeviceConformance, StartsOpsOnAHealthyDevice) {
  std::atomic<int> begun = 0;
  for (int i = 0; i < 100; ++i) {
    compute_.enqueue([&] {
      device_->begin_op();
      ++begun;
    });
  }
  finish(compute_);
  EXPECT_EQ(begun, 100);
  EXPECT_NO_THROW(device_->check());
  EXPECT_GE(device_->slowdown(), 1);
}

/// Lets the calling thread compute for a while, without sleeping.
inline void burn_cpu(double seconds) {
  const auto cpu_s = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  for (const double begin = cpu_s(); cpu_s() - begin < seconds;) {
  }
}

/// The thread that does the queue's work.
inline pid_t thread_of(Queue& queue) {
  std::promise<pid_t> thread;
  queue.enqueue([&] { thread.set_value(gettid()); });
  return thread.get_future().get();
}

TEST_P(DeviceConformance, SleepsWhileAQueueIsIdle) {
  for (Queue* queue : {&compute_, &h2d_, &d2h_}) testing::expect_asleep(thread_of(*queue));
}

TEST_P(DeviceConformance, SleepsWhileAQueueWaits) {
  const pid_t thread = thread_of(compute_);
  Gate gate;
  h2d_.enqueue(gate.work());
  const Event opened = h2d_.record();
  compute_.wait(opened);
  const Event waited = compute_.record();
  testing::expect_asleep(thread);
  EXPECT_FALSE(waited.done());
  gate.open();
  waited.wait();
}

}  // namespace spillway
