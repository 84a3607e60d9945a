#include "spilling/tiers/file_store.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "tests/conformance/store_conformance.h"

namespace spillway {
namespace {

using testing::TemporaryFolder;
using testing::thrown;

std::unique_ptr<Store> make(Device&, const std::filesystem::path& folder) {
  return std::make_unique<FileStore>(folder);
}

INSTANTIATE_TEST_SUITE_P(File, StoreConformance, ::testing::Values(StoreCase{"file", make}),
                         [](const auto& test) { return test.param.name; });

bool has(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

TEST(FileStore, NamesTheFolderInRefusals) {
  const TemporaryFolder folder;
  FileStore store(folder.path());
  const auto error = thrown<OutOfMemory>([&] { store.allocate(Bytes{1} << 60); });
  EXPECT_EQ(error.tier, Tier::disk);
  EXPECT_TRUE(has(error, folder.path())) << error.what();
  EXPECT_TRUE(has(error, format_bytes(error.available))) << error.what();
}

TEST(FileStore, CreatesUnnamedFiles) {
  const TemporaryFolder folder;
  FileStore store(folder.path());
  const auto memory = store.allocate(1_MiB);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

/// Others may use the same disk meanwhile.
TEST(FileStore, ReservesSpaceAtOnceAndReturnsIt) {
  const TemporaryFolder folder;
  const auto free_bytes = [&] {
    struct statvfs disk {};
    EXPECT_EQ(::statvfs(folder.path().c_str(), &disk), 0);
    return static_cast<std::int64_t>(disk.f_bavail * disk.f_frsize);
  };
  FileStore store(folder.path());
  constexpr std::int64_t kSize = 256_MiB, kOthers = 128_MiB;
  if (free_bytes() < 2 * kSize) GTEST_SKIP() << "the disk is too full";
  const auto before = free_bytes();
  auto memory = store.allocate(kSize);
  EXPECT_LT(free_bytes(), before - kSize + kOthers) << "before anything is written";
  memory.reset();
  EXPECT_GT(free_bytes(), before - kOthers);
}

TEST(FileStore, NamesAnUnusableFolder) {
  const TemporaryFolder folder;
  folder.write("file", "");
  const auto missing = thrown<IoError>([&] { FileStore store(folder / "missing"); });
  EXPECT_EQ(missing.code, ENOENT);
  EXPECT_EQ(missing.path, folder / "missing");
  EXPECT_EQ(thrown<IoError>([&] { FileStore store(folder / "file"); }).code, ENOTDIR);
  if (::geteuid() == 0) return;  // root can write anywhere
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_read);
  const auto closed = thrown<IoError>([&] { FileStore store(folder.path()); });
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  EXPECT_EQ(closed.code, EACCES);
}

TEST(FileStore, TakesNoBudgetForARemovedFolder) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "homes");
  FileStore store(folder / "homes");
  HostArena arena(1_MiB, store);
  std::filesystem::remove(folder / "homes");
  EXPECT_EQ(thrown<IoError>([&] { arena.reserve(4096); }).code, ENOENT);
  EXPECT_EQ(arena.in_use(), 0u);
  EXPECT_EQ(arena.peak(), 0u);
}

/// Limits the size of this process's files.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(Bytes bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit lowered{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &lowered);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(FileStore, ReportsTheSizeOfAFailedReservation) {
  const TemporaryFolder folder;
  FileStore store(folder.path());
  HostArena arena(1_GiB, store);
  const FileSizeLimit limit(1_MiB);
  const auto error = thrown<IoError>([&] { arena.reserve(3_MiB); });
  EXPECT_EQ(error.code, EFBIG);
  EXPECT_TRUE(
      has(error, "cannot reserve 3.00 MiB for an offload file in " + folder.path().string()));
  EXPECT_EQ(arena.in_use(), 0u);
  EXPECT_EQ(arena.reserve(1_MiB).size(), 1_MiB);
}

}  // namespace
}  // namespace spillway
