#include "trainer/storage/run_lock.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

using testing::TemporaryFolder;
using testing::thrown;

/// A process that holds the folder until it is killed.
class Holder {
 public:
  explicit Holder(const std::filesystem::path& folder, bool in_order = false) {
    int ready[2];
    if (::pipe(ready) != 0) throw std::runtime_error("no pipe");
    child_ = ::fork();
    if (child_ == 0) {
      const RunLock lock(folder);
      if (in_order) lock.end_in_order();
      if (::write(ready[1], "x", 1) == 1) ::pause();
      ::_exit(0);
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~Holder() { kill(); }
  void kill() {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  pid_t pid() const { return child_; }

 private:
  pid_t child_ = -1;
};

TEST(RunLock, NamesTheHolder) {
  const TemporaryFolder folder;
  const Holder holder(folder.path());
  for (int again = 0; again < 2; ++again) {
    const std::string said = thrown<InUse>([&] { RunLock(folder.path()); }).what();
    EXPECT_EQ(said, "'" + folder.path().string() + "' is in use by process " +
                        std::to_string(holder.pid()) +
                        "; wait for its end, stop it, or choose another folder");
  }
}

TEST(RunLock, EndsWithItsProcess) {
  const TemporaryFolder folder;
  Holder holder(folder.path());
  holder.kill();
  const RunLock lock(folder.path());
  EXPECT_TRUE(lock.follows_crash());
  EXPECT_EQ(folder.read("lock"), std::to_string(::getpid()) + "\n");
}

TEST(RunLock, KnowsAnEndInOrderFromACrash) {
  const TemporaryFolder folder;
  Holder(folder.path(), /*in_order=*/true).kill();
  EXPECT_FALSE(RunLock(folder.path()).follows_crash());
  Holder(folder.path()).kill();
  {
    RunLock lock(folder.path());
    EXPECT_TRUE(lock.follows_crash());
    lock.keep_mark();
  }
  EXPECT_TRUE(RunLock(folder.path()).follows_crash());
  EXPECT_FALSE(RunLock(folder.path()).follows_crash());
}

TEST(RunLock, EndsWithItsObject) {
  const TemporaryFolder folder;
  { const RunLock lock(folder.path()); }
  EXPECT_EQ(folder.read("lock"), "");
  EXPECT_FALSE(RunLock(folder.path()).follows_crash());
}

/// Also while another process queries it again and again: queries do not disturb whoever takes the
/// lock.
TEST(RunLock, CanBeQueriedWithoutTakingIt) {
  const TemporaryFolder folder;
  EXPECT_EQ(holder_of(folder.path()), std::nullopt);
  {
    const Holder holder(folder.path());
    EXPECT_EQ(holder_of(folder.path()), "process " + std::to_string(holder.pid()));
  }
  std::atomic<bool> done = false;
  std::thread asker([&] {
    while (!done) holder_of(folder.path());
  });
  for (int i = 0; i < 2000; ++i) EXPECT_NO_THROW(RunLock(folder.path()));
  done = true;
  asker.join();
  EXPECT_EQ(holder_of(folder.path()), std::nullopt);
}

TEST(RunLock, MovesToItsNewOwner) {
  const TemporaryFolder folder;
  RunLock first(folder.path());
  {
    const RunLock second(std::move(first));
    EXPECT_EQ(second.folder(), folder.path());
    EXPECT_TRUE(holder_of(folder.path()));
  }
  EXPECT_FALSE(holder_of(folder.path()));
}

TEST(RunLock, NeverWritesThroughALink) {
  const TemporaryFolder folder;
  folder.write("thesis.tex", "years of work");
  std::filesystem::create_symlink("thesis.tex", folder.path() / "lock");
  EXPECT_EQ(thrown<IoError>([&] { RunLock(folder.path()); }).code, ELOOP);
  EXPECT_EQ(folder.read("thesis.tex"), "years of work");
}

TEST(RunLock, RefusesAPipeWithoutWaiting) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "lock").c_str(), 0666), 0);
  EXPECT_THROW(RunLock(folder.path()), IoError);
  EXPECT_EQ(holder_of(folder.path()), std::nullopt);
}

TEST(RunLock, ReportsAMissingFolder) {
  const TemporaryFolder folder;
  const auto error = thrown<IoError>([&] { RunLock(folder / "gone"); });
  EXPECT_EQ(error.code, ENOENT);
  EXPECT_EQ(error.path, folder / "gone/lock");
}

}  // namespace
}  // namespace spillway
