#include "trainer/journal/journal.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/random/from_environment.h"
#include "trainer/journal/run_journal.h"

namespace {

/// A system call that these functions replace.
int num_syncs = 0, num_writes = 0;
int failing_sync = 0, failing_write = 0;  // counted from 1; 0: none

ssize_t counted_pwrite(int file, const void* data, std::size_t size, off_t offset) {
  if (++num_writes == failing_write) {
    errno = ENOSPC;
    return -1;
  }
  return ::pwrite(file, data, size, offset);
}

void count_writes() {
  sqlite3_vfs* const system = sqlite3_vfs_find(nullptr);
  for (const char* call : {"pwrite", "pwrite64"})
    system->xSetSystemCall(system, call, reinterpret_cast<sqlite3_syscall_ptr>(counted_pwrite));
}

}  // namespace

/// Replaces the system's function; SQLite calls it.
extern "C" int fdatasync(int file) {
  if (++num_syncs == failing_sync) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}

namespace spillway {
namespace {

using testing::kSanitized;
using testing::TemporaryFolder;
using testing::thrown;

/// A journal's file in a folder of its own.
struct JournalFile : TemporaryFolder {
  std::string path = *this / "journal.sqlite";
  std::vector<JournalTrial> trials() const { return Journal(path).trials(); }
};

TEST(Journal, StoresChanges) {
  const JournalFile file;
  const std::string config("model: {family: gpt}\n\0\xff tail", 29);
  {
    Journal journal(file.path);
    EXPECT_TRUE(journal.submit("a", config).is_new);
    EXPECT_TRUE(journal.submit("b", "").is_new);
    journal.set_state("a", "failed", "device 0 is lost");
    journal.set_result("a", R"({"loss": 1.5})");
    journal.committed("a", 1, 10);
    journal.committed("a", 4, 10);
  }
  const JournalTrial a{.client_id = "a",
                       .config = config,
                       .state = "failed",
                       .reason = "device 0 is lost",
                       .result = R"({"loss": 1.5})",
                       .committed = CommittedGeneration{.generation = 4, .step = 10}};
  EXPECT_EQ(file.trials(), (std::vector{a, JournalTrial{.client_id = "b"}}));
}

TEST(Journal, StoresASubmissionOnce) {
  const JournalFile file;
  Journal journal(file.path);
  journal.submit("a", "one");
  journal.set_state("a", "done");
  const auto again = journal.submit("a", "one");
  EXPECT_FALSE(again.is_new);
  EXPECT_EQ(again.trial.state, "done");
  const auto error = thrown<ConfigError>([&] { journal.submit("a", "two"); });
  EXPECT_STREQ(error.what(),
               "client_id: 'a' was submitted before with another configuration; choose another "
               "id, or submit the same configuration");
  EXPECT_EQ(thrown<ConfigError>([&] { journal.submit("", "two"); }).field, "client_id");
  ASSERT_EQ(journal.trials().size(), 1U);
  EXPECT_EQ(journal.trials()[0].config, "one");
}

TEST(Journal, RefusesUnknownTrials) {
  const JournalFile file;
  Journal journal(file.path);
  EXPECT_THROW(journal.set_state("a", "done"), ConfigError);
  EXPECT_THROW(journal.set_result("a", "{}"), ConfigError);
  EXPECT_THROW(journal.set_config("a", "one"), ConfigError);
  EXPECT_THROW(journal.committed("a", 1, 1), ConfigError);
  EXPECT_TRUE(journal.trials().empty());
}

/// A trial that continues from an older checkpoint, or from none, falls behind its last commit.
TEST(Journal, KeepsTheLastCommit) {
  const JournalFile file;
  Journal journal(file.path);
  journal.submit("a", "");
  for (const auto& [generation, step] :
       std::vector<std::pair<std::uint64_t, std::uint64_t>>{{5, 50}, {5, 50}, {6, 43}, {1, 8}}) {
    journal.committed("a", generation, step);
    EXPECT_EQ(journal.trials()[0].committed, (CommittedGeneration{generation, step}));
  }
  EXPECT_THROW(journal.committed("a", 1ULL << 63U, 60), Error);
  EXPECT_EQ(journal.trials()[0].committed, (CommittedGeneration{1, 8}));
}

TEST(Journal, SyncsEveryChange) {
  const JournalFile file;
  Journal journal(file.path);
  const auto syncs_of = [](const auto& change) {
    const int before = num_syncs;
    change();
    return num_syncs - before;
  };
  EXPECT_GT(syncs_of([&] { journal.submit("a", ""); }), 0);
  EXPECT_GT(syncs_of([&] { journal.set_state("a", "running"); }), 0);
  EXPECT_GT(syncs_of([&] { journal.committed("a", 1, 1); }), 0);
  EXPECT_GT(syncs_of([&] { journal.set_result("a", "{}"); }), 0);
  EXPECT_GT(syncs_of([&] { journal.set_config("a", "one"); }), 0);
  EXPECT_EQ(journal.trials()[0].config, "one");
  EXPECT_EQ(syncs_of([&] { journal.trials(); }), 0);
}

/// One call of one kind fails, for every such call of a few changes.
void fail_each(int& count, int& failing, int code) {
  count_writes();
  const JournalFile file;
  int failures = 0;
  for (int n = 1;; ++n) {
    const auto generation = static_cast<std::uint64_t>(n);
    Journal journal(file.path);
    journal.submit("a", "config");
    count = 0;
    failing = n;
    const auto before = journal.trials();
    try {
      journal.committed("a", generation, generation);
      journal.set_state("a", "state " + std::to_string(n));
    } catch (const IoError& error) {
      ++failures;
      EXPECT_EQ(error.code, code);
      EXPECT_EQ(error.path, file.path);
    }
    const bool reached = count >= n;
    failing = 0;
    ASSERT_EQ(journal.trials().size(), 1U);
    journal.set_state("a", "goes on");
    EXPECT_EQ(file.trials(), journal.trials());
    if (!reached) break;
  }
  EXPECT_GT(failures, 1);
}

TEST(Journal, RecoversFromAFullDisk) { fail_each(num_writes, failing_write, ENOSPC); }

TEST(Journal, ReportsAFailedSync) { fail_each(num_syncs, failing_sync, EIO); }

TEST(Journal, RefusesANewerFormat) {
  const JournalFile file;
  { Journal journal(file.path); }
  SqlFile(file.path).run("PRAGMA user_version = 2");
  const auto error = thrown<NewerFormat>([&] { file.trials(); });
  EXPECT_EQ(error.version, 2U);
  EXPECT_EQ(error.path, file.path);
}

TEST(Journal, RefusesOtherFilesAndKeepsThem) {
  const JournalFile file;
  const std::string text = "name: a text, and no database, that is longer than its header\n";
  file.write("journal.sqlite", text + text);
  const auto error = thrown<CorruptData>([&] { file.trials(); });
  EXPECT_EQ(error.path, file.path);
  EXPECT_NE(std::string(error.what()).find("restore a copy"), std::string::npos);
  EXPECT_EQ(file.read("journal.sqlite"), text + text);

  std::filesystem::remove(file.path);
  SqlFile(file.path).run("CREATE TABLE other(x)");
  EXPECT_THROW(file.trials(), CorruptData);
  EXPECT_EQ(SqlFile(file.path).number("SELECT count(*) FROM sqlite_schema"), 1);
}

TEST(Journal, ReportsAMissingFolder) {
  const JournalFile file;
  EXPECT_EQ(thrown<IoError>([&] { Journal(file / "gone/journal.sqlite"); }).code, ENOENT);
}

/// A journal of a few trials, as the bytes of its files: with and without its log.
std::map<std::string, std::string> small_journal(bool with_log) {
  const JournalFile file;
  std::map<std::string, std::string> bytes;
  const auto keep = [&](const std::string& name) { bytes[name] = file.read(name); };
  {
    Journal journal(file.path);
    for (const char* id : {"lr=0.1", "lr=0.2", "lr=0.3"}) {
      journal.submit(id, std::string("train: {") + id + "}");
      journal.committed(id, 3, 30);
    }
    if (with_log) keep("journal.sqlite");
    if (with_log) keep("journal.sqlite-wal");
  }
  if (!with_log) keep("journal.sqlite");
  return bytes;
}

/// Flips one bit in many bytes of one of the files. Reading gives the right content or an error.
void damage(const std::map<std::string, std::string>& sound, const std::string& name,
            int least_errors) {
  const auto trials_of = [](const auto& files) {
    const JournalFile file;
    for (const auto& [each, bytes] : files) file.write(each, bytes);
    return file.trials();
  };
  const auto expected = trials_of(sound);
  ASSERT_EQ(expected.size(), 3U);
  std::mt19937 random(1);
  int errors = 0;
  for (std::size_t at = 0; at < sound.at(name).size(); ++at) {
    // Most of the zeros are free space.
    if (at >= 100 && sound.at(name)[at] == 0 && random() % 32 != 0) continue;
    auto damaged = sound;
    damaged.at(name)[at] ^= static_cast<char>(1U << random() % 8);
    try {
      EXPECT_EQ(trials_of(damaged), expected) << name << " at byte " << at;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("journal.sqlite"), std::string::npos);
      ++errors;
    }
  }
  EXPECT_GE(errors, least_errors);
}

TEST(Journal, DetectsAllDamage) { damage(small_journal(false), "journal.sqlite", 500); }

TEST(Journal, LosesNothingByADamagedLog) {
  const auto sound = small_journal(true);
  ASSERT_FALSE(sound.at("journal.sqlite-wal").empty());
  damage(sound, "journal.sqlite-wal", 0);
}

/// The acknowledgement of the journal that a child passes to its parent.
struct Acknowledged {
  std::uint32_t trial;
  std::uint32_t generation;  // 0: the submission
};

std::string id_of(std::uint32_t trial) { return "trial " + std::to_string(trial); }
std::string config_of(std::uint32_t trial) { return "{seed: " + std::to_string(trial) + "}"; }

/// Submits one trial after the other, each with some generations, until it is killed.
[[noreturn]] void write_for_ever(const std::string& path, int out) {
  const auto tell = [&](Acknowledged what) {
    if (::write(out, &what, sizeof(what)) != sizeof(what)) ::_exit(1);
  };
  Journal journal(path);
  for (auto trial = static_cast<std::uint32_t>(journal.trials().size());; ++trial) {
    journal.submit(id_of(trial), config_of(trial));
    tell({trial, 0});
    for (std::uint32_t generation = 1; generation <= 3; ++generation) {
      journal.committed(id_of(trial), generation, 10 * generation);
      tell({trial, generation});
    }
  }
}

/// Kills a child a moment after `num_acknowledged` acknowledgements. Returns the acknowledged ones.
std::vector<Acknowledged> write_and_kill(const std::string& path, unsigned num_acknowledged,
                                         unsigned a_bit) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child == 0) write_for_ever(path, ends[1]);
  ::close(ends[1]);
  std::vector<Acknowledged> all;
  Acknowledged next{};
  const auto receive = [&] { return ::read(ends[0], &next, sizeof(next)) == sizeof(next); };
  while (all.size() < num_acknowledged && receive()) all.push_back(next);
  for (unsigned i = 0; i < a_bit; ++i) ::syscall(SYS_getpid);
  ::kill(child, SIGKILL);
  while (receive()) all.push_back(next);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  return all;
}

/// Returns the number of trials.
std::size_t check_after_kill(const std::string& path, std::size_t before,
                             const std::vector<Acknowledged>& acknowledged) {
  Journal journal(path);
  const auto trials = journal.trials();
  for (std::uint32_t i = 0; i < trials.size(); ++i) {
    EXPECT_EQ(trials[i].client_id, id_of(i));
    EXPECT_EQ(trials[i].config, config_of(i));
  }
  std::size_t num_submitted = before;
  for (const auto [trial, generation] : acknowledged) {
    if (trial >= trials.size()) ADD_FAILURE() << "trial " << trial << " is lost";
    if (trial >= trials.size()) break;
    num_submitted = std::max<std::size_t>(num_submitted, trial + 1);
    EXPECT_FALSE(journal.submit(id_of(trial), config_of(trial)).is_new);
    const auto& committed = trials[trial].committed;
    EXPECT_GE(committed ? committed->generation : 0, generation);
  }
  EXPECT_LE(trials.size(), num_submitted + 1);
  return trials.size();
}

TEST(Journal, KeepsAcknowledgedSubmissionsOnceOverKills) {
  constexpr int kKills = kSanitized ? 60 : 300;
  const JournalFile file;
  std::mt19937 random(7);
  std::size_t num_trials = 0;
  for (int kill = 0; kill < kKills && !HasFailure(); ++kill) {
    const auto acknowledged = write_and_kill(file.path, random() % 8, random() % 5000);
    num_trials = check_after_kill(file.path, num_trials, acknowledged);
  }
  EXPECT_GT(num_trials, kKills / 3U);
}

TEST(Journal, AcceptsASubmissionFromOneOfTwoProcesses) {
  constexpr std::uint32_t kTrials = 40;
  const JournalFile file;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  for (int child = 0; child < 2; ++child) {
    if (::fork() != 0) continue;
    Journal journal(file.path);
    for (std::uint32_t trial = 0; trial < kTrials; ++trial) {
      const bool is_new = journal.submit(id_of(trial), config_of(trial)).is_new;
      if (is_new && ::write(ends[1], &trial, sizeof(trial)) != sizeof(trial)) ::_exit(1);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  std::array<int, kTrials> num_new{};
  std::uint32_t trial = 0;
  while (::read(ends[0], &trial, sizeof(trial)) == sizeof(trial)) ++num_new.at(trial);
  ::close(ends[0]);
  for (int child = 0; child < 2; ++child) {
    int status = -1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  for (const int count : num_new) EXPECT_EQ(count, 1);
  EXPECT_EQ(file.trials().size(), kTrials);
}

TEST(RunJournal, RetriesFailedWrites) {
  const TemporaryFolder folder;
  boost::asio::thread_pool writer(1);
  RunJournal journal(RunLock(folder.path()), writer);
  journal.submit("a", "{}");
  journal.flush();
  failing_sync = num_syncs + 1;
  journal.note([](Journal& file) { file.set_state("a", "running"); });
  journal.note([](Journal& file) { file.committed("a", 1, 5); });
  journal.flush();
  EXPECT_GE(num_syncs, failing_sync);
  failing_sync = 0;
  EXPECT_EQ(journal.find("a")->state, "running");
  EXPECT_EQ(journal.find("a")->committed, (CommittedGeneration{1, 5}));
  EXPECT_FALSE(journal.find("b"));
  journal.note([](Journal& file) { file.set_state("b", "running"); });
  journal.note([](Journal& file) { file.set_state("a", "done"); });
  EXPECT_THROW(journal.flush(), ConfigError);
  EXPECT_EQ(journal.find("a")->state, "done") << "what is refused keeps nothing back";
  EXPECT_NO_THROW(journal.flush());
}

}  // namespace
}  // namespace spillway
