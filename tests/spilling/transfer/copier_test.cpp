#include "spilling/transfer/copier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <vector>

#include "spilling/tiers/device_arena.h"

namespace spillway {
namespace {

class CopierTest : public ::testing::Test {
 protected:
  static Copier::Finished ignore() {
    return [](Clock::time_point, Clock::time_point) {};
  }

  std::unique_ptr<Device> device_ = make_cpu_device("cpu:0", 1_MiB);
  DeviceArena arena_{*device_};
  std::unique_ptr<DeviceMemory> host_ = device_->allocate_host(1_MiB);
  Copier copier_{*device_};
};

TEST_F(CopierTest, CopiesBytesToTheDeviceAndBack) {
  std::byte* host = host_->data();
  for (std::size_t i = 0; i < 1000; ++i) host[i] = static_cast<std::byte>(i * 7);
  std::byte* device = arena_.at(4096, 1000);
  copier_.to_device(device, host, 1000, ignore()).wait();
  EXPECT_TRUE(std::equal(host, host + 1000, device));
  copier_.to_host(host + 5000, device, 600, ignore()).wait();
  EXPECT_TRUE(std::equal(host, host + 600, host + 5000));
  EXPECT_EQ(host[5600], std::byte{0});
}

TEST_F(CopierTest, FinishesCopiesOfOneDirectionInOrder) {
  std::vector<int> order;
  std::promise<void> last;
  for (int i = 0; i < 50; ++i) {
    const Bytes bytes = i % 2 == 0 ? 512_KiB : 64;
    copier_.to_device(arena_.at(0, bytes), host_->data(), bytes,
                      [&, i](Clock::time_point begin, Clock::time_point end) {
                        EXPECT_LE(begin, end);
                        order.push_back(i);
                        if (i == 49) last.set_value();
                      });
  }
  last.get_future().wait();
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order.size(), 50u);
}

TEST_F(CopierTest, RunsDirectionsIndependently) {
  std::promise<void> open;
  device_->host_to_device().enqueue([gate = open.get_future().share()] { gate.wait(); });
  copier_.to_device(arena_.at(0, 64), host_->data(), 64, ignore());
  copier_.to_host(host_->data(), arena_.at(4096, 64), 64, ignore()).wait();
  open.set_value();
  device_->host_to_device().record().wait();
}

}  // namespace
}  // namespace spillway
