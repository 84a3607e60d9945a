#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <string>

#include "spillway/error.h"
#include "tests/support/run/checkpoint_run.h"
#include "trainer/checkpoint/checkpoint_store.h"

/// Damages the newest of two generations in every way. The store must always detect and report
/// this, and open the previous generation.
namespace spillway::testing {
namespace {

const std::string kWeights = "weights.safetensors", kMoments = "moments.safetensors",
                  kManifest = "MANIFEST";

class CheckpointDamage : public ::testing::Test {
 protected:
  CheckpointDamage() {
    CrashFs disk;
    CheckpointRun run(disk);
    auto store = run.open();
    run.write(store, 1);
    run.write(store, 2);
    sound_ = disk.now();
  }

  using Entries = std::map<std::string, int>;
  static Entries& entries_of(Disk& disk, const std::string& generation) {
    const int folder = disk.nodes.at(Disk::kRoot).entries.at("checkpoints");
    return disk.nodes.at(disk.nodes.at(folder).entries.at(generation)).entries;
  }
  /// Files of the newest generation.
  static Entries& newest_of(Disk& disk) { return entries_of(disk, "000000000002"); }
  static std::string& bytes_of(Disk& disk, const std::string& file) {
    return disk.nodes.at(newest_of(disk).at(file)).bytes;
  }

  /// After `damage` the store opens the first generation, and its finding names `file`.
  void expect_detected(const std::string& file, const std::function<void(Disk&)>& damage) {
    Disk disk = sound_;
    damage(disk);
    CrashFs files(std::move(disk));
    CheckpointStore store(files, kCheckpoints);
    const auto newest = store.open_newest();
    ASSERT_TRUE(newest.generation);
    EXPECT_EQ(newest.generation->number(), 1u);
    EXPECT_TRUE(is_right(*newest.generation));
    ASSERT_EQ(newest.findings.size(), 1u);
    EXPECT_EQ(newest.findings[0].generation, 2u);
    EXPECT_NE(newest.findings[0].problem.find("000000000002/" + file), std::string::npos)
        << newest.findings[0].problem;
  }

  void expect_flip_is_detected(const std::string& file, std::size_t at, int pattern) {
    expect_detected(file, [&](Disk& disk) {
      char& byte = bytes_of(disk, file)[at];
      byte = static_cast<char>(byte ^ pattern);
    });
  }

  Disk sound_;
};

TEST_F(CheckpointDamage, OpensTheNewestIfIntact) {
  CrashFs files(sound_);
  CheckpointStore store(files, kCheckpoints);
  const auto newest = store.open_newest();
  EXPECT_EQ(newest.generation->number(), 2u);
  EXPECT_TRUE(newest.findings.empty());
}

TEST_F(CheckpointDamage, DetectsEveryDamagedManifestByte) {
  for (std::size_t at = 0; at < bytes_of(sound_, kManifest).size(); ++at)
    for (const int pattern : {0x01, 0x10, 0x80, 0xFF})
      expect_flip_is_detected(kManifest, at, pattern);
}

TEST_F(CheckpointDamage, DetectsEveryDamagedTensorHeaderByte) {
  for (const auto& file : {kWeights, kMoments}) {
    const auto& bytes = bytes_of(sound_, file);
    const auto end = 8 + static_cast<std::size_t>(static_cast<unsigned char>(bytes[0]));
    for (std::size_t at = 0; at < end; ++at)
      for (const int pattern : {0x01, 0x20, 0xFF}) expect_flip_is_detected(file, at, pattern);
  }
}

TEST_F(CheckpointDamage, DetectsTenThousandRandomBitFlips) {
  std::mt19937 random(1);
  for (int run = 0; run < 10'000; ++run) {
    const auto& file = run % 3 == 0 ? kMoments : kWeights;
    expect_flip_is_detected(file, random() % bytes_of(sound_, file).size(), 1 << random() % 8);
    if (HasFailure()) return;
  }
}

TEST_F(CheckpointDamage, DetectsEveryWrongLength) {
  for (const auto& file : {kManifest, kWeights, std::string("state.json")}) {
    const std::size_t length = bytes_of(sound_, file).size();
    for (std::size_t wrong = 0; wrong <= length + 1; ++wrong)
      if (wrong != length)
        expect_detected(file, [&](Disk& disk) { bytes_of(disk, file).resize(wrong); });
    expect_detected(file, [&](Disk& disk) { bytes_of(disk, file).resize(10 * length); });
  }
  expect_detected("empty", [&](Disk& disk) { bytes_of(disk, "empty") = "x"; });
}

TEST_F(CheckpointDamage, DetectsEveryMissingFile) {
  for (const auto& [file, node] : newest_of(sound_))
    expect_detected(file, [&](Disk& disk) { newest_of(disk).erase(file); });
}

TEST_F(CheckpointDamage, DetectsSwappedFilesAndBlocks) {
  expect_detected("", [&](Disk& disk) {
    std::swap(newest_of(disk).at(kWeights), newest_of(disk).at(kMoments));
  });
  expect_detected("", [&](Disk& disk) {
    newest_of(disk).at(kWeights) = entries_of(disk, "000000000001").at(kWeights);
  });
  expect_detected("", [&](Disk& disk) {
    newest_of(disk).at(kManifest) = entries_of(disk, "000000000001").at(kManifest);
  });
  expect_detected(kWeights, [&](Disk& disk) {
    auto& bytes = bytes_of(disk, kWeights);
    const auto block = CheckpointRun::kBlock;
    std::swap_ranges(bytes.begin(), bytes.begin() + block, bytes.begin() + block);
  });
}

TEST_F(CheckpointDamage, DetectsAFolderInPlaceOfAFile) {
  expect_detected(kWeights, [&](Disk& disk) {
    disk.nodes[1000].is_folder = true;
    newest_of(disk)[kWeights] = 1000;
  });
}

}  // namespace
}  // namespace spillway::testing
