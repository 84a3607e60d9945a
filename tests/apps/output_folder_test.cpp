#include "apps/output_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "apps/event_log.h"
#include "core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thrown.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;
using testing::thrown;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(OutputFolder, ANewOrEmptyFolderIsFree) {
  const TemporaryFolder root;
  fs::create_directory(root / "empty");
  for (const std::string name : {"empty", "new", "a/b/c", "new/"}) {
    EXPECT_EQ(OutputFolder(root / name).problem(false), "") << name;
    EXPECT_EQ(OutputFolder(root / name).problem(true), "") << name;
  }
  EXPECT_FALSE(fs::exists(root / "new")) << "looking changes nothing";
}

TEST(OutputFolder, AnEarlierRunIsReplacedOnlyIfAskedFor) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  folder.create({"a", "b"});
  const auto problem = folder.problem(false);
  EXPECT_TRUE(has(problem, "'" + (root / "run") + "' holds an earlier run")) << problem;
  EXPECT_TRUE(has(problem, "--overwrite")) << problem;
  EXPECT_EQ(folder.problem(true), "");
}

TEST(OutputFolder, FilesOfOthersAreNeverReplaced) {
  const TemporaryFolder root;
  root.write("mine/thesis.tex", "years of work");
  for (const bool overwrite : {false, true}) {
    const auto problem = OutputFolder(root / "mine").problem(overwrite);
    EXPECT_TRUE(has(problem, "no earlier run's")) << problem;
    EXPECT_TRUE(has(problem, "choose another")) << problem;
    EXPECT_FALSE(has(problem, "--overwrite")) << problem;
  }
}

TEST(OutputFolder, CreateRemovesTheOutputsOfTheEarlierRunAndNothingElse) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  folder.create({"old"});
  for (const char* name : {"results.csv", "config.yaml", "trials/old/weights.safetensors",
                           "notes.txt", "plots/loss.png"})
    root.write(std::string("run/") + name, "x");
  folder.create({"new"});
  for (const char* name : {"results.csv", "config.yaml", "trials/old"})
    EXPECT_FALSE(fs::exists(folder.file(name))) << name;
  for (const char* name : {".spillway", "notes.txt", "plots/loss.png", "trials/new"})
    EXPECT_TRUE(fs::exists(folder.file(name))) << name;
}

TEST(OutputFolder, EveryTrialHasAFolderForItsWeights) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "deep/run");
  folder.create({"a=1", "a=2"});
  EXPECT_EQ(folder.weights_file("a=1"), root / "deep/run/trials/a=1/weights.safetensors");
  for (const std::string trial : {"a=1", "a=2"})
    EXPECT_TRUE(fs::is_directory(folder.weights_file(trial).parent_path()));
}

TEST(OutputFolder, WritesWholeFiles) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  folder.create({});
  folder.write("results.csv", "trial,loss\n");
  folder.write("results.csv", "new\n");
  EXPECT_EQ(root.read("run/results.csv"), "new\n");
  EXPECT_FALSE(fs::exists(folder.file("results.csv.tmp")));
}

TEST(OutputFolder, AFileIsNoFolder) {
  const TemporaryFolder root;
  root.write("file", "x");
  fs::create_symlink("nowhere", root / "broken");
  for (const std::string name : {"file", "file/run", "file/a/b", "broken"}) {
    const auto problem = OutputFolder(root / name).problem(true);
    EXPECT_TRUE(has(problem, "is a file; choose another")) << problem;
  }
  EXPECT_EQ(thrown<IoError>([&] { OutputFolder(root / "file/run").create({}); }).code, ENOTDIR);
}

/// Its permissions let root write, and yet nobody can.
TEST(OutputFolder, APlaceThatTakesNoFilesIsAProblem) {
  const auto problem = OutputFolder("/proc/spillway/run").problem(false);
  EXPECT_TRUE(has(problem, "'/proc/spillway/run' cannot be written: /proc: ")) << problem;
}

TEST(OutputFolder, ARunThatGoesOnIsNotReplaced) {
  const TemporaryFolder root;
  const OutputFolder folder(root / "run");
  folder.create({"a"});
  {
    const EventLog log(folder.file(kEventFile));
    const auto problem = folder.problem(true);
    EXPECT_TRUE(has(problem, "holds a run that goes on")) << problem;
  }
  EXPECT_EQ(folder.problem(true), "");
}

TEST(OutputFolder, AFolderWithoutPermissionIsAProblem) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write anywhere";
  const TemporaryFolder root;
  fs::permissions(root.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const auto problem = OutputFolder(root / "run").problem(false);
  fs::permissions(root.path(), fs::perms::owner_all);
  EXPECT_TRUE(has(problem, root.path().string() + ": Permission denied")) << problem;
}

}  // namespace
}  // namespace spillway
