#include "spilling/tiers/homes.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "core/device/device.h"
#include "spilling/tiers/memory_store.h"
#include "spillway/error.h"

namespace spillway {
namespace {

constexpr Bytes kOwn = 2 * kPage, kShared = 4 * kPage;
const std::vector<SharedBlock> kBlocks{{"first", kSharedHomes, kPage},
                                       {"second", kSharedHomes + kPage, 3 * kPage}};

class HomesTest : public ::testing::Test {
 protected:
  /// Writes `value` wherever it may.
  void fill(Home& home, int value, const std::vector<SharedBlock>& blocks = kBlocks) {
    homes.fill(home, kOwn, blocks, find, [&] {
      *home.at(kOwn - 1) = std::byte(value);
      for (const SharedBlock& block : blocks) {
        const Bytes last = block.home + block.bytes - 1;
        if (!home.is_written(last)) *home.at(last) = std::byte(value);
      }
    });
  }
  static int last_of(const Home& home, std::size_t block) {
    return std::to_integer<int>(*home.at(kBlocks[block].home + kBlocks[block].bytes - 1));
  }

  const std::unique_ptr<Device> device = make_cpu_device("cpu:0", 1_MiB);
  MemoryStore store{*device};
  HostArena arena{2 * kOwn + kShared + kPage, store};
  Homes homes{arena};
  Homes::Find find = [](const SharedBlock&) { return nullptr; };
};

TEST_F(HomesTest, HaveSharedBlocksOnce) {
  Home first, second;
  fill(first, 1);
  EXPECT_EQ(arena.in_use(), kOwn + kShared);
  fill(second, 2);
  EXPECT_EQ(arena.in_use(), 2 * kOwn + kShared);
  EXPECT_NE(first.at(0), second.at(0));
  for (const SharedBlock& block : kBlocks) EXPECT_EQ(first.at(block.home), second.at(block.home));
  EXPECT_EQ(last_of(second, 0), 1) << "only the first job writes them";
  EXPECT_EQ(last_of(second, 1), 1);
  EXPECT_FALSE(Home::is_shared(kOwn - 1));
  EXPECT_TRUE(Home::is_shared(kBlocks[1].home));
  homes.release(first);
  EXPECT_EQ(arena.in_use(), kOwn + kShared);
  EXPECT_EQ(last_of(second, 1), 1) << "a job that ends leaves them to the others";
  homes.release(second);
  EXPECT_EQ(arena.in_use(), 0u);
  fill(first, 3);
  EXPECT_EQ(last_of(first, 0), 3) << "nobody had them any more";
}

TEST_F(HomesTest, UseMemoryThatHasABlockAlready) {
  constexpr int kFound = 7;
  const auto file = std::make_shared<std::vector<std::byte>>(kBlocks[1].bytes);
  file->back() = std::byte{kFound};
  find = [&](const SharedBlock& block) -> std::shared_ptr<std::byte> {
    return block.content == "second" ? std::shared_ptr<std::byte>(file, file->data()) : nullptr;
  };
  Home first, second;
  fill(first, 1);
  fill(second, 2);
  for (const Home* home : {&first, &second}) {
    EXPECT_EQ(last_of(*home, 0), 1);
    EXPECT_EQ(last_of(*home, 1), kFound) << "nobody writes what is there";
    EXPECT_EQ(home->at(kBlocks[1].home), file->data());
  }
  EXPECT_EQ(arena.in_use(), 2 * kOwn + kShared) << "it counts nevertheless";
  EXPECT_GT(file.use_count(), 1);
  homes.release(first);
  homes.release(second);
  EXPECT_EQ(file.use_count(), 1) << "this test";
  EXPECT_EQ(arena.in_use(), 0u);
}

TEST_F(HomesTest, HaveBlocksOfOtherContentApart) {
  Home first, second;
  fill(first, 1);
  fill(second, 2, {{"other", kSharedHomes, kPage}});
  EXPECT_EQ(last_of(first, 0), 1);
  EXPECT_EQ(last_of(second, 0), 2);
  EXPECT_EQ(arena.in_use(), 2 * kOwn + kShared + kPage);
}

TEST_F(HomesTest, AreWrittenByTheNextJobIfOneFails) {
  Home failing, next;
  EXPECT_THROW(
      homes.fill(failing, kOwn, kBlocks, find, [] { throw std::runtime_error("a bad file"); }),
      std::runtime_error);
  fill(next, 2);
  EXPECT_EQ(last_of(next, 0), 2);
  homes.release(failing);
  EXPECT_EQ(arena.in_use(), kOwn + kShared);
}

TEST_F(HomesTest, StayWithinTheBudget) {
  Home first, second;
  fill(first, 1);
  EXPECT_THROW(fill(second, 2, {{"other", kSharedHomes, kShared}}), OutOfMemory);
  homes.release(second);
  EXPECT_EQ(arena.in_use(), kOwn + kShared);
}

}  // namespace
}  // namespace spillway
