#include "spilling/residency/residency.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace spillway {
namespace {

constexpr auto kLow = RangeAllocator::End::low;
constexpr BufferRef kA{JobId(0), 0}, kB{JobId(0), 1}, kOther{JobId(1), 0};

TEST(Residency, GivesCopiesSeparateRanges) {
  Residency memory(4096);
  const Resident* a = memory.place(kA, 1024, kLow);
  const Resident* b = memory.place(kB, 1024, RangeAllocator::End::high);
  const Resident* other = memory.place(kOther, 2048, kLow);
  ASSERT_TRUE(a && b && other);
  EXPECT_EQ(a->offset, 0u);
  EXPECT_EQ(b->offset, 3072u);
  EXPECT_EQ(other->offset, 1024u);
  EXPECT_EQ(memory.used(), 4096u);
  memory.check_integrity();
}

TEST(Residency, ChangesNothingIfTheDeviceIsFull) {
  Residency memory(2048);
  ASSERT_TRUE(memory.place(kA, 1536, kLow));
  EXPECT_EQ(memory.place(kB, 1024, kLow), nullptr);
  EXPECT_EQ(memory.find(kB), nullptr);
  EXPECT_EQ(memory.used(), 1536u);
  memory.release(kA);
  EXPECT_TRUE(memory.place(kB, 1024, kLow));
}

TEST(Residency, TreatsLeasedFillingAndDrainingCopiesAsBusy) {
  EXPECT_FALSE(Resident{}.busy());
  EXPECT_TRUE(Resident{.leases = 1}.busy());
  EXPECT_TRUE(Resident{.filling = 7}.busy());
  EXPECT_TRUE(Resident{.draining = 7}.busy());
}

TEST(Residency, CountsBytesByJob) {
  Residency memory(4096);
  for (BufferRef ref : {kA, kB, kOther}) ASSERT_TRUE(memory.place(ref, 64, kLow));
  EXPECT_EQ(memory.jobs().at(JobId(0)), 128u);
  EXPECT_EQ(memory.jobs().at(JobId(1)), 64u);
  memory.release(kOther);
  EXPECT_FALSE(memory.jobs().contains(JobId(1)));
}

TEST(Residency, DetectsBrokenInvariants) {
  Residency memory(4096);
  Resident* a = memory.place(kA, 1024, kLow);
  a->filling = 3;
  a->dirty = true;
  EXPECT_THROW(memory.check_integrity(), std::logic_error);
  a->filling = 0;
  memory.check_integrity();
  a->leases = -1;
  EXPECT_THROW(memory.check_integrity(), std::logic_error);
}

}  // namespace
}  // namespace spillway
