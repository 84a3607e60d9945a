#include "spilling/residency/residency_manager.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <vector>

namespace spillway {
namespace {

using Room = ResidencyManager::Room;

constexpr JobId kJob(0);
constexpr DeviceId kFirst(0), kSecond(1);
constexpr Bytes kSize = 1024;

/// Two devices with room for three buffers each, and a job of six buffers.
class Owner : public ResidencyOwner {
 public:
  Owner() {
    for (int b = 0; b < 6; ++b) {
      specs.push_back({.bytes = kSize, .home_bytes = kSize, .home = at(b) * kSize});
    }
    manager.add_job();
    manager.begin(kJob, specs, 0);
    for (int b = 0; b < 6; ++b) manager.set_home_valid({kJob, b});
  }

  double next_use(BufferRef ref) const override {
    const auto found = uses.find(ref.buffer);
    return found == uses.end() ? std::numeric_limits<double>::infinity() : found->second;
  }
  bool has_several_readers(BufferRef) const override { return is_read_by_several; }
  bool is_running(JobId) const override { return true; }
  ActionId start_copy(StartCopy copy) override {
    copies.push_back(copy);
    return copies.size();
  }
  ActionId start_drop(DeviceId, BufferRef graph) override {
    dropped.push_back(graph.buffer);
    return 1000 + dropped.size();
  }
  void touch(DeviceId device) override { touched.insert(device); }
  void watch(JobId, DeviceId device) override { watching.insert(device); }

  Room place(DeviceId device, int buffer) {
    return manager.make_room(*this, device, {.place = {{kJob, buffer}}}).room;
  }
  /// A copy of its home that nothing uses.
  void load(DeviceId device, int buffer) {
    ASSERT_EQ(place(device, buffer), Room::ready);
    manager.load(*this, device, {kJob, buffer});
    end_last();
  }
  /// A copy that is nowhere else.
  void make(DeviceId device, int buffer) {
    ASSERT_EQ(place(device, buffer), Room::ready);
    copy(device, buffer).dirty = true;
  }
  void end_last() { manager.end_copy(*this, last_route()); }
  CopyRoute last_route() const {
    const StartCopy& last = copies.back();
    return {{last.job, last.buffer}, last.device, last.direction, last.peer};
  }
  Resident& copy(DeviceId device, int buffer) { return *manager.on(device).find({kJob, buffer}); }
  bool has(DeviceId device, int buffer) const { return manager.holds(device, {kJob, buffer}); }

  ResidencyManager manager{std::vector<Bytes>{3 * kSize, 3 * kSize}};
  std::vector<BufferSpec> specs;
  std::map<int, double> uses;
  std::vector<StartCopy> copies;
  std::vector<int> dropped;
  bool is_read_by_several = false;
  std::set<DeviceId> touched, watching;
};

TEST(ResidencyManager, EvictsTheCopyThatIsUsedLast) {
  Owner owner;
  for (int b = 0; b < 3; ++b) owner.load(kFirst, b);
  owner.uses = {{0, 1}, {1, 3}, {2, 2}};
  EXPECT_EQ(owner.place(kFirst, 3), Room::ready);
  EXPECT_TRUE(owner.has(kFirst, 0) && owner.has(kFirst, 2) && owner.has(kFirst, 3));
  EXPECT_FALSE(owner.has(kFirst, 1));
  owner.manager.check_integrity();
}

TEST(ResidencyManager, KeepsLeasedKeptAndSparedCopies) {
  Owner owner;
  for (int b = 0; b < 3; ++b) owner.load(kFirst, b);
  owner.copy(kFirst, 0).leases = 1;
  const std::vector<int> spared{2};
  const auto made = owner.manager.make_room(
      owner, kFirst,
      {.place = {{kJob, 3}}, .keep = {{kJob, 1}}, .spared_job = kJob, .spared = spared});
  EXPECT_EQ(made.room, Room::never);
  EXPECT_EQ(made.evictions, 0);
  EXPECT_FALSE(owner.has(kFirst, 3));
}

TEST(ResidencyManager, WritesADirtyCopyBackBeforeFreeingItsRange) {
  Owner owner;
  owner.manager.begin(kJob, owner.specs, 0);  // no home is valid
  for (int b = 0; b < 3; ++b) owner.make(kFirst, b);
  EXPECT_EQ(owner.place(kFirst, 3), Room::wait);
  ASSERT_EQ(owner.copies.size(), 1u);
  EXPECT_EQ(owner.copies[0].direction, CopyDirection::to_host);
  const int victim = owner.copies[0].buffer;
  EXPECT_FALSE(owner.manager.home_valid({kJob, victim}));
  owner.end_last();
  EXPECT_TRUE(owner.manager.home_valid({kJob, victim}));
  EXPECT_FALSE(owner.has(kFirst, victim));
  EXPECT_EQ(owner.place(kFirst, 3), Room::ready);
}

TEST(ResidencyManager, WaitsForABusyHome) {
  Owner owner;
  owner.specs[1].home = owner.specs[0].home;  // as of a boundary and its gradient
  owner.manager.begin(kJob, owner.specs, 0);
  owner.make(kFirst, 0);
  owner.make(kFirst, 1);
  owner.manager.write_back(owner, kFirst, {kJob, 0}, true);
  EXPECT_EQ(owner.manager.evict_all(owner, kFirst), 0);
  EXPECT_EQ(owner.watching, std::set{kFirst});
  owner.end_last();
  EXPECT_EQ(owner.manager.evict_all(owner, kFirst), 1);
}

TEST(ResidencyManager, LoadsFromTheOnlyHolder) {
  Owner owner;
  owner.manager.begin(kJob, owner.specs, 0);
  owner.make(kFirst, 0);
  EXPECT_TRUE(owner.manager.fetch_homes(owner, kSecond, kJob, {0}));
  ASSERT_EQ(owner.place(kSecond, 0), Room::ready);
  owner.touched.clear();
  owner.manager.load(owner, kSecond, {kJob, 0});
  EXPECT_EQ(owner.copies.back().peer, kFirst);
  EXPECT_EQ(owner.touched, (std::set{kFirst, kSecond}));
  owner.end_last();
  EXPECT_FALSE(owner.has(kFirst, 0));
  EXPECT_TRUE(owner.copy(kSecond, 0).dirty);
}

TEST(ResidencyManager, WritesBackACopyInUseElsewhere) {
  Owner owner;
  owner.manager.begin(kJob, owner.specs, 0);
  owner.make(kFirst, 0);
  owner.copy(kFirst, 0).leases = 1;
  EXPECT_FALSE(owner.manager.fetch_homes(owner, kSecond, kJob, {0}));
  EXPECT_EQ(owner.copies.back().direction, CopyDirection::to_host);
  owner.end_last();
  EXPECT_TRUE(owner.has(kFirst, 0));
  EXPECT_TRUE(owner.manager.fetch_homes(owner, kSecond, kJob, {0}));
}

TEST(ResidencyManager, KeepsTheSourceOfAMoveToALostDevice) {
  Owner owner;
  owner.uses = {{0, 1}};
  owner.manager.begin(kJob, owner.specs, 0);
  owner.make(kFirst, 0);
  ASSERT_EQ(owner.place(kSecond, 0), Room::ready);
  owner.manager.load(owner, kSecond, {kJob, 0});
  owner.manager.forget(kSecond);
  owner.manager.end_lost_copy(owner, owner.last_route());
  EXPECT_TRUE(owner.has(kFirst, 0));
  EXPECT_FALSE(owner.has(kSecond, 0));
  EXPECT_FALSE(owner.copy(kFirst, 0).busy());
  EXPECT_TRUE(owner.manager.has_only_copy(owner, kFirst, kJob));
  owner.manager.check_integrity();
}

TEST(ResidencyManager, DropsDeadBuffersAtOnceOrAfterTheirTransfer) {
  Owner owner;
  owner.manager.begin(kJob, owner.specs, 0);
  owner.make(kFirst, 0);
  owner.make(kFirst, 1);
  owner.manager.write_back(owner, kFirst, {kJob, 0}, false);
  for (int b : {0, 1}) owner.manager.drop_everywhere(owner, {kJob, b});
  EXPECT_TRUE(owner.has(kFirst, 0));
  EXPECT_FALSE(owner.has(kFirst, 1));
  owner.end_last();
  EXPECT_FALSE(owner.has(kFirst, 0));
}

/// A graph leaves for what needs its room, and then what it needed may leave too.
TEST(ResidencyManager, EvictsAGraphBeforeWhatItNeeds) {
  Owner owner;
  owner.specs[2] = {.kind = BufferKind::graph, .bytes = kSize};
  owner.manager.begin(kJob, owner.specs, 0);
  for (int b = 0; b < 2; ++b) owner.manager.set_home_valid({kJob, b});
  for (int b = 0; b < 2; ++b) owner.load(kFirst, b);
  EXPECT_FALSE(owner.manager.place_all(kFirst, {.place = {{kJob, 3}, {kJob, 4}}}));
  ASSERT_TRUE(owner.manager.place_all(kFirst, {.place = {{kJob, 2}}}));
  owner.manager.hold_for(kFirst, {kJob, 2}, {0, 1});
  EXPECT_EQ(owner.manager.graphs_that_need(kFirst, {kJob, 1}), 1);
  EXPECT_EQ(owner.place(kFirst, 3), Room::wait) << "until the graph is gone";
  EXPECT_EQ(owner.dropped, std::vector<int>{2});
  EXPECT_EQ(owner.copy(kFirst, 0).leases, 1);
  owner.manager.end_drop(owner, kFirst, {kJob, 2});
  EXPECT_FALSE(owner.has(kFirst, 2));
  EXPECT_EQ(owner.copy(kFirst, 0).leases, 0);
  EXPECT_EQ(owner.place(kFirst, 3), Room::ready);
  EXPECT_EQ(owner.place(kFirst, 4), Room::ready);
  owner.manager.check_integrity();
}

TEST(ResidencyManager, RequiresRoomForAnOpBesideTheRemainingCopies) {
  Owner owner;
  for (int b = 0; b < 2; ++b) owner.load(kFirst, b);
  const std::vector<Bytes> pieces{2 * kSize};
  const ResidencyManager::Request request{.keep = {{kJob, 0}}, .op_area = pieces};
  EXPECT_TRUE(owner.manager.op_area_fits(kFirst, request)) << "the other copy may go";
  owner.copy(kFirst, 1).leases = 1;
  EXPECT_FALSE(owner.manager.op_area_fits(kFirst, request));
}

}  // namespace
}  // namespace spillway
