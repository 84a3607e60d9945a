#include "spillway/error.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "core/device/mapped_memory.h"

namespace spillway {
namespace {

TEST(Error, OutOfMemoryNamesTierOwnerAndNumbers) {
  const OutOfMemory e(Tier::device, 3_MiB, 1_MiB, "cpu:0");
  EXPECT_STREQ(e.what(), "device memory: cpu:0 asked for 3.00 MiB but 1.00 MiB are left");
  EXPECT_EQ(e.tier, Tier::device);
  EXPECT_EQ(e.requested, 3_MiB);
  EXPECT_EQ(e.available, 1_MiB);
}

TEST(Error, CallsDiskMemorySpace) {
  EXPECT_STREQ(OutOfMemory(Tier::disk, 3_MiB, 1_MiB, "a file").what(),
               "disk space: a file asked for 3.00 MiB but 1.00 MiB are left");
  EXPECT_STREQ(
      DoesNotFit("a file", Tier::disk, 2_MiB, 1_MiB, "or lower checkpoint.keep").what(),
      "a file does not fit: it needs 2.00 MiB (2097152 bytes) of disk space, left are 1.00 "
      "MiB (1048576 bytes); free some there; or lower checkpoint.keep");
}

TEST(Error, DistinguishesTheSystemFromABudget) {
  const SystemOutOfMemory e(Tier::device, 64_MiB, 14_GiB, "cpu:0");
  EXPECT_STREQ(e.what(),
               "the system gave no memory: cpu:0 asked it for 64.00 MiB of address space, while "
               "14.00 GiB of the machine's memory are free; raise the limit of the process "
               "(ulimit -v) or of its memory group, or lower the memory of devices or host_memory");
  EXPECT_EQ(e.requested, 64_MiB);
  EXPECT_THROW(MappedMemory(Bytes{1} << 62, Tier::device, "cpu:0"), SystemOutOfMemory);
}

TEST(Error, IoErrorNamesFileAndCause) {
  const IoError e("cannot read", "/no/such", ENOENT);
  EXPECT_STREQ(e.what(), "cannot read /no/such: No such file or directory");
}

TEST(Error, NamesUnusableFiles) {
  const CorruptData damaged("/g/w", "ends at byte 3");
  EXPECT_STREQ(damaged.what(), "/g/w ends at byte 3");
  EXPECT_EQ(damaged.path, "/g/w");
  const NewerFormat newer("/g/MANIFEST", 3, 1);
  EXPECT_EQ(newer.path, "/g/MANIFEST");
  EXPECT_EQ(newer.version, 3u);
}

TEST(Error, ConfigErrorNamesLineAndField) {
  EXPECT_STREQ(ConfigError("train.seed", 7, "is no number").what(),
               "line 7: train.seed: is no number");
  EXPECT_STREQ(ConfigError("train.seed", 0, "is no number").what(), "train.seed: is no number");
  EXPECT_STREQ(ConfigError("", 7, "bad indent").what(), "line 7: bad indent");
}

TEST(Error, DeviceLostNamesTheDeviceAndTheCause) {
  const DeviceLost e("cpu:1", "it did not answer");
  EXPECT_STREQ(e.what(), "device cpu:1 is lost: it did not answer");
  EXPECT_EQ(e.device, "cpu:1");
  EXPECT_EQ(e.why, "it did not answer");
}

TEST(Error, DoesNotFitNamesExactBytes) {
  const DoesNotFit e("trial a", Tier::device, 2_MiB + 1, 1_MiB);
  EXPECT_STREQ(e.what(),
               "trial a does not fit: it needs 2.00 MiB (2097153 bytes) of device memory, the "
               "budget is 1.00 MiB (1048576 bytes); raise the memory of a device to that");
}

}  // namespace
}  // namespace spillway
