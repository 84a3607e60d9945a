#include "scheduler/engine/device_set.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

std::vector<std::size_t> members(const DeviceSet& set) {
  std::vector<std::size_t> found;
  for (DeviceId id = set.next(0); id.valid(); id = set.next(id.index() + 1)) {
    found.push_back(id.index());
  }
  return found;
}

TEST(DeviceSet, IteratesInOrder) {
  DeviceSet set(200);
  EXPECT_TRUE(set.empty());
  for (const int device : {199, 0, 64, 63, 130}) set.set(DeviceId(device), true);
  EXPECT_EQ(members(set), (std::vector<std::size_t>{0, 63, 64, 130, 199}));
  set.set(DeviceId(64), false);
  set.set(DeviceId(65), false);
  EXPECT_EQ(members(set), (std::vector<std::size_t>{0, 63, 130, 199}));
  EXPECT_TRUE(set.contains(DeviceId(63)));
  EXPECT_FALSE(set.contains(DeviceId(64)));
}

TEST(DeviceSet, AllowsChangesDuringIteration) {
  DeviceSet set(70);
  set.set(DeviceId(1), true);
  std::vector<std::size_t> seen;
  for (DeviceId id = set.next(0); id.valid(); id = set.next(id.index() + 1)) {
    seen.push_back(id.index());
    set.set(id, false);
    if (seen.size() == 1) set.set(DeviceId(69), true);
  }
  EXPECT_EQ(seen, (std::vector<std::size_t>{1, 69}));
  EXPECT_TRUE(set.empty());
}

TEST(DeviceSet, Grows) {
  DeviceSet set(1);
  set.set(DeviceId(0), true);
  set.grow(129);
  EXPECT_EQ(members(set), std::vector<std::size_t>{0});
  set.set(DeviceId(128), true);
  EXPECT_EQ(members(set), (std::vector<std::size_t>{0, 128}));
}

}  // namespace
}  // namespace spillway
