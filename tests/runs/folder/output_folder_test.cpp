#include "runs/folder/output_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "runs/log/event_log.h"
#include "runs/log/run_json.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/made_up_run.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using testing::thrown;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(OutputFolder, AcceptsANewOrEmptyFolder) {
  const TemporaryFolder root;
  fs::create_directory(root / "empty");
  for (const std::string name : {"empty", "new", "a/b/c", "new/"}) {
    EXPECT_EQ(OutputFolder(root / name).problem(false), "") << name;
    EXPECT_EQ(OutputFolder(root / name).problem(true), "") << name;
  }
  EXPECT_FALSE(fs::exists(root / "new")) << "looking changes nothing";
}

/// A minimal log for these tests.
void write_log(const OutputFolder& folder, int num_trials) {
  EventLog log(folder.file(kEventFile));
  log.add(testing::made_up_run_event(num_trials));
  log.flush();
}

TEST(OutputFolder, ReplacesAnEarlierRunOnlyOnRequest) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  const RunLock lock = folder.lock();
  folder.create({"a", "b"});
  write_log(folder, 1);
  const auto problem = folder.problem(false);
  EXPECT_TRUE(has(problem, "'" + (root / "run") + "' holds an earlier run")) << problem;
  EXPECT_TRUE(has(problem, "--overwrite")) << problem;
  EXPECT_EQ(folder.problem(true), "");
}

/// A journal, weights, or checkpoints are work too.
TEST(OutputFolder, IsARunWhileAnythingCouldBeLost) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  const RunLock lock = folder.lock();
  folder.create({"a"});
  EXPECT_EQ(folder.content(), OutputFolder::Content::leftovers);
  for (const char* name : {"journal.sqlite", "trials/a/weights.safetensors",
                           "trials/a/checkpoints/000000000001/MANIFEST", "events.jsonl"}) {
    root.write(std::string("run/") + name, "{}\n");
    EXPECT_EQ(folder.content(), OutputFolder::Content::run) << name;
    fs::remove(folder.file(name));
  }
  EXPECT_EQ(folder.content(), OutputFolder::Content::leftovers);
}

TEST(OutputFolder, IgnoresLeftoversOfAKilledStart) {
  const TemporaryFolder root;
  for (const char* name : {".spillway.tmp", ".spillway-a1B2c3/x", "lock"}) {
    const TemporaryFolder killed;
    killed.write(name, "");
    const OutputFolder folder(killed.path());
    EXPECT_EQ(folder.content(), OutputFolder::Content::leftovers) << name;
    EXPECT_EQ(folder.problem(false), "") << name;
  }
}

/// Neither a folder, nor a link, nor a foreign text counts.
TEST(OutputFolder, ChecksTheContentOfTheMarker) {
  const TemporaryFolder root;
  root.write("text/.spillway", "my notes on dams");
  root.write("folder/.spillway/x", "");
  root.write("elsewhere", "This folder belongs to a run of spillway train");
  fs::create_directory(root / "link");
  fs::create_symlink(root / "elsewhere", root / "link/.spillway");
  for (const char* name : {"text", "folder", "link"}) {
    EXPECT_EQ(OutputFolder(root / name).content(), OutputFolder::Content::others) << name;
  }
}

TEST(OutputFolder, NeverReplacesForeignFiles) {
  const TemporaryFolder root;
  root.write("mine/thesis.tex", "years of work");
  for (const bool overwrite : {false, true}) {
    const auto problem = OutputFolder(root / "mine").problem(overwrite);
    EXPECT_TRUE(has(problem, "were not written by a run")) << problem;
    EXPECT_TRUE(has(problem, "choose another")) << problem;
    EXPECT_FALSE(has(problem, "--overwrite")) << problem;
  }
}

TEST(OutputFolder, RemovesOnlyTheFilesOfTheEarlierRun) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  const RunLock lock = folder.lock();
  folder.create({"trial 0"});
  write_log(folder, 1);
  const std::vector<std::string> written{
      "results.csv",
      "config.yaml",
      "journal.sqlite",
      "trials/trial 0/weights.safetensors",
      "trials/trial 0/metrics.csv",
      "trials/trial 0/checkpoints/000000000007/MANIFEST",
      "trials/trial 0/checkpoints/000000000008.tmp/weights.safetensors"};
  const std::vector<std::string> others{"notes.txt",
                                        "plots/loss.png",
                                        "trials/data.txt",
                                        "trials/trial 0/plots/loss.png",
                                        "trials/trial 0/checkpoints/best/weights.safetensors",
                                        "trials/copy/weights.safetensors"};
  for (const auto* names : {&written, &others})
    for (const auto& name : *names) root.write("run/" + name, "x");
  folder.create({"new"});
  for (const auto& name : written) EXPECT_FALSE(fs::exists(folder.file(name))) << name;
  for (const auto& name : others) EXPECT_TRUE(fs::exists(folder.file(name))) << name;
  EXPECT_TRUE(fs::exists(folder.file("trials/new")));
}

TEST(OutputFolder, RemovesNothingOutsideOfItself) {
  for (const char* name : {"../../other", "..", "/", "a/b"}) {
    const TemporaryFolder root;
    const OutputFolder folder(root / "run");
    const RunLock lock = folder.lock();
    folder.create({"a"});
    EventLog log(folder.file(kEventFile));
    Json event = testing::made_up_run_event(1);
    event["trials"][0]["name"] = name;
    log.add(event);
    log.flush();
    root.write("other/weights.safetensors", "x");
    root.write("run/trials/a/b/weights.safetensors", "x");
    folder.create({"a"});
    EXPECT_TRUE(fs::exists(root.path() / "other/weights.safetensors")) << name;
    EXPECT_TRUE(fs::exists(root.path() / "run/trials/a/b/weights.safetensors")) << name;
  }
}

TEST(OutputFolder, RemovesWhatNobodyElseUsesWithTheRun) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  const RunLock lock = folder.lock();
  folder.create({"trial 0"});
  write_log(folder, 1);
  folder.create({"new"});
  EXPECT_FALSE(fs::exists(folder.file("trials/trial 0")));
}

TEST(OutputFolder, AcceptsAPathThroughAMissingFolder) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "gone/../run");
  EXPECT_EQ(folder.problem(false), "");
  const RunLock lock = folder.lock();
  folder.create({"a"});
  EXPECT_TRUE(fs::exists(root / "run/.spillway"));
}

TEST(OutputFolder, CreatesAWeightsFolderForEveryTrial) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "deep/run");
  const RunLock lock = folder.lock();
  folder.create({"a=1", "a=2"});
  EXPECT_EQ(folder.weights_file("a=1"), root / "deep/run/trials/a=1/weights.safetensors");
  for (const std::string trial : {"a=1", "a=2"})
    EXPECT_TRUE(fs::is_directory(folder.weights_file(trial).parent_path()));
}

TEST(OutputFolder, WritesFilesCompletely) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  const RunLock lock = folder.lock();
  folder.write("results.csv", "trial,loss\n");
  folder.write("results.csv", "new\n");
  EXPECT_EQ(root.read("run/results.csv"), "new\n");
  EXPECT_FALSE(fs::exists(folder.file("results.csv.tmp")));
}

TEST(OutputFolder, RefusesAFileAsFolder) {
  const TemporaryFolder root;
  root.write("file", "x");
  for (const std::string name : {"file", "file/run", "file/a/b"}) {
    const auto problem = OutputFolder(root / name).problem(true);
    EXPECT_TRUE(has(problem, "is a file; choose another")) << problem;
  }
  EXPECT_EQ(thrown<IoError>([&] { OutputFolder(root / "file/run").lock(); }).code, ENOTDIR);
}

TEST(OutputFolder, NamesADanglingLink) {
  const TemporaryFolder root;
  fs::create_symlink("nowhere", root / "broken");
  fs::create_symlink("loop", root / "loop");
  for (const std::string name : {"broken", "loop"}) {
    const auto problem = OutputFolder(root / name).problem(true);
    EXPECT_TRUE(has(problem, "is a broken symbolic link")) << problem;
  }
}

/// Its permissions let root write, but writing fails.
TEST(OutputFolder, ReportsAPlaceThatTakesNoFiles) {
  const auto problem = OutputFolder("/proc/spillway/run").problem(false);
  EXPECT_TRUE(has(problem, "'/proc/spillway/run' cannot be written: /proc: ")) << problem;
}

TEST(OutputFolder, ReportsAFolderWithoutPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  const TemporaryFolder root;
  fs::permissions(root.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const auto problem = OutputFolder(root / "run").problem(false);
  fs::permissions(root.path(), fs::perms::owner_all);
  EXPECT_TRUE(has(problem, root.path().string() + ": Permission denied")) << problem;
}

}  // namespace
}  // namespace spillway
