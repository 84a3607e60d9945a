#include "tests/support/disk/crash_fs.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/conformance/file_system_conformance.h"
#include "tests/support/disk/failing_fs.h"

namespace spillway {
namespace {

using testing::CrashFs;
using testing::Disk;
using testing::FailingFs;
using testing::Fault;
using Path = FileSystem::Path;

INSTANTIATE_TEST_SUITE_P(Crash, FileSystemConformance,
                         ::testing::Values(FileSystemCase{
                             "crash", [] { return std::make_shared<CrashFs>(); },
                             [](FileSystem& files, const auto&) {
                               files.make_folder("/f");
                               return Path("/f");
                             }}),
                         [](const auto& test) { return test.param.name; });

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Bytes of a file after a crash that lost all unsynced data, or "none".
std::string left(const CrashFs& files, const Path& path, std::mt19937* random = nullptr) {
  CrashFs after(files.after_crash(files.num_changes(), random));
  try {
    return read_file(after, path, 1_MiB);
  } catch (const IoError&) {
    return "none";
  }
}

TEST(CrashFs, KeepsSyncedBytesAndNames) {
  CrashFs files;
  auto file = OpenFile::create(files, "/a");
  file.write_all(bytes("text"), 0);
  EXPECT_EQ(left(files, "/a"), "none");
  files.sync_folder("/");
  EXPECT_EQ(left(files, "/a"), "");
  file.sync();
  EXPECT_EQ(left(files, "/a"), "text");
  file.write_all(bytes("more"), 4);
  EXPECT_EQ(left(files, "/a"), "text");
  file.preallocate(100);
  EXPECT_EQ(left(files, "/a"), "text");
}

TEST(CrashFs, LosesASyncedFileWithoutAName) {
  CrashFs files;
  auto file = OpenFile::create(files, "/a");
  file.sync();
  EXPECT_EQ(left(files, "/a"), "none");
}

TEST(CrashFs, KeepsARenameAfterTheFolderSync) {
  CrashFs files;
  OpenFile::create(files, "/a").sync();
  files.sync_folder("/");
  files.rename("/a", "/b");
  EXPECT_EQ(left(files, "/a"), "");
  EXPECT_EQ(left(files, "/b"), "none");
  files.sync_folder("/");
  EXPECT_EQ(left(files, "/a"), "none");
  EXPECT_EQ(left(files, "/b"), "");
}

TEST(CrashFs, KeepsARenamedFolderWithItsSyncedFiles) {
  CrashFs files;
  files.make_folder("/g.tmp");
  OpenFile::create(files, "/g.tmp/a").sync();
  files.rename("/g.tmp", "/g");
  files.sync_folder("/");
  EXPECT_EQ(left(files, "/g/a"), "none") << "the folder itself was not synced";
  files.sync_folder("/g");
  EXPECT_EQ(left(files, "/g/a"), "");
}

TEST(CrashFs, CrashesAtEveryChange) {
  CrashFs files;
  auto file = OpenFile::create(files, "/a");
  file.write_all(bytes("text"), 0);
  file.sync();
  files.sync_folder("/");
  ASSERT_EQ(files.num_changes(), 4u);
  EXPECT_TRUE(files.after_crash(0, nullptr).nodes.at(Disk::kRoot).entries.empty());
  CrashFs after(files.after_crash(4, nullptr));
  EXPECT_EQ(read_file(after, "/a", 10), "text");
}

TEST(CrashFs, KeepsLosesOrTearsUnsyncedWrites) {
  CrashFs files;
  auto file = OpenFile::create(files, "/a");
  files.sync_folder("/");
  file.write_all(bytes(std::string(512, 'x')), 0);
  file.write_all(bytes(std::string(2000, 'y')), 512);
  std::set<std::string> seen;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 random(seed);
    seen.insert(left(files, "/a", &random));
  }
  const std::string x(512, 'x'), y(2000, 'y'), zeros(512, '\0');
  EXPECT_TRUE(seen.contains("")) << "all lost";
  EXPECT_TRUE(seen.contains(x)) << "the second lost";
  EXPECT_TRUE(seen.contains(zeros + y)) << "the second overtook the first";
  EXPECT_TRUE(seen.contains(x + y)) << "all kept";
  EXPECT_TRUE(seen.contains(x + std::string(512, 'y') + zeros + std::string(976, 'y')))
      << "a sector lost";
  const auto torn_anywhere = [](const std::string& text) { return text.size() % 512 % 7 == 3; };
  EXPECT_TRUE(std::ranges::any_of(seen, torn_anywhere));
}

TEST(CrashFs, LosesWritesAfterAFailedSync) {
  CrashFs files;
  auto file = OpenFile::create(files, "/a");
  files.sync_folder("/");
  FailingFs failing(files, Fault{.code = EIO});
  file.write_all(bytes("lost"), 0);
  auto same = files.open("/a");
  EXPECT_THROW(failing.sync(same), IoError);
  failing.sync(same);
  EXPECT_EQ(left(files, "/a"), "");
  EXPECT_EQ(read_file(files, "/a", 10), "lost") << "programs see it until the crash";
  file.write_all(bytes("kept"), 0);
  failing.sync(same);
  EXPECT_EQ(left(files, "/a"), "kept");
}

TEST(CrashFs, FreesSpaceWithTheName) {
  CrashFs files({}, 100);
  auto file = OpenFile::create(files, "/a");
  file.preallocate(60);
  EXPECT_EQ(files.free_bytes("/"), 40u);
  EXPECT_EQ(testing::thrown<IoError>([&] { file.preallocate(101); }).code, ENOSPC);
  EXPECT_EQ(testing::thrown<IoError>([&] { file.write_all(bytes("12"), 99); }).code, ENOSPC);
  files.unlink("/a");
  EXPECT_EQ(files.free_bytes("/"), 100u);
}

TEST(FailingFs, FailsTheChosenCallOnceOrForever) {
  for (const bool for_ever : {false, true}) {
    CrashFs disk;
    FailingFs files(disk, Fault{.code = ENOSPC, .at = 1, .for_ever = for_ever});
    files.make_folder("/a");
    EXPECT_EQ(testing::thrown<IoError>([&] { files.make_folder("/b"); }).code, ENOSPC);
    if (for_ever) {
      EXPECT_THROW(files.make_folder("/b"), IoError);
    } else {
      files.make_folder("/b");
    }
    EXPECT_EQ(disk.list("/").size(), for_ever ? 1u : 2u);
  }
}

TEST(OpenFile, CompletesShortAndInterruptedCalls) {
  for (const auto fault : {Fault{Fault::Kind::short_count, 0, 1, true}, Fault{.code = EINTR},
                           Fault{.code = EINTR, .at = 1}, Fault{.code = EINTR, .at = 2}}) {
    CrashFs disk;
    FailingFs files(disk, fault);
    auto file = OpenFile::create(files, "/a");
    file.preallocate(3);
    file.write_all(bytes("many bytes"), 0);
    EXPECT_EQ(read_file(files, "/a", 100), "many bytes");
    EXPECT_GT(files.num_failed(), 0);
  }
}

TEST(OpenFile, GivesUpAfterEndlessInterruptions) {
  CrashFs disk;
  FailingFs files(disk, Fault{.code = EINTR, .for_ever = true});
  EXPECT_EQ(testing::thrown<IoError>([&] { OpenFile::create(files, "/a"); }).code, EINTR);
}

TEST(OpenFile, DoesNotRepeatAnInterruptedSync) {
  CrashFs disk;
  FailingFs files(disk, Fault{.code = EINTR, .at = 1});
  auto file = OpenFile::create(files, "/a");
  EXPECT_EQ(testing::thrown<IoError>([&] { file.sync(); }).code, EINTR);
  EXPECT_EQ(files.calls(), 2);
}

}  // namespace
}  // namespace spillway
