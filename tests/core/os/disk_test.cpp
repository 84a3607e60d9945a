#include "core/os/disk.h"

#include <gtest/gtest.h>

#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

using testing::TemporaryFolder;

TEST(Disk, ContainsFoldersOfOneDisk) {
  const TemporaryFolder folder;
  EXPECT_TRUE(share_disk(folder.path(), folder.path() / "not/there/yet"));
  EXPECT_FALSE(share_disk(folder.path(), "/proc"));
}

}  // namespace
}  // namespace spillway
