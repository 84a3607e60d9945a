#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>

#include "core/os/file_system.h"
#include "spillway/error.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

TEST(Folders, CreatesMissingParents) {
  const TemporaryFolder folder;
  for (const char* name : {"a/b/c", "a/b/c", "d/e/", "f/../g/./h"}) {
    make_folders(folder.path() / name);
    EXPECT_TRUE(fs::is_directory((folder.path() / name).lexically_normal())) << name;
  }
}

TEST(Folders, RefusesAFileAsParent) {
  const TemporaryFolder folder;
  folder.write("file", "here");
  try {
    make_folders(folder.path() / "file" / "below");
    FAIL() << "made a folder in a file";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code, ENOTDIR) << error.what();
  }
}

TEST(Folders, FindsTheNearestExistingParent) {
  const TemporaryFolder folder;
  const auto& here = folder.path();
  fs::create_directory(here / "a");
  fs::create_symlink("nowhere", here / "link");
  EXPECT_EQ(existing_part(here / "a/b/c"), here / "a");
  EXPECT_EQ(existing_part(here / "a/"), here / "a");
  EXPECT_EQ(existing_part(here / "x/../a/./b"), here / "a");
  EXPECT_EQ(existing_part(here / "link/b"), here / "link");
  EXPECT_EQ(existing_part("/no-such-folder/at/all"), "/");
}

}  // namespace
}  // namespace spillway
