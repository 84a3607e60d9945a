#include "trainer/checkpoint/checkpoint_store.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "core/base/xxh3.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/failing_fs.h"
#include "tests/support/run/checkpoint_run.h"
#include "trainer/checkpoint/generation_writer.h"

namespace spillway::testing {
namespace {

using Numbers = std::vector<std::uint64_t>;
using Names = std::vector<std::string>;

TEST(CheckpointStore, OpensAnEmptyFolder) {
  CrashFs disk;
  CheckpointStore store(disk, kCheckpoints);
  EXPECT_EQ(disk.list("/"), Names{"checkpoints"});
  EXPECT_FALSE(store.open_newest().generation);
  EXPECT_TRUE(store.generations().empty());
  EXPECT_TRUE(store.verify().empty());
}

TEST(CheckpointStore, RoundTrips) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  run.write(store, 10);
  run.write(store, 20);
  const auto newest = store.open_newest();
  ASSERT_TRUE(newest.generation);
  EXPECT_EQ(newest.generation->number(), 2u);
  EXPECT_EQ(newest.generation->manifest().step, 20u);
  EXPECT_TRUE(is_right(*newest.generation));
  EXPECT_TRUE(newest.findings.empty());
  EXPECT_EQ(disk.list(kCheckpoints), (Names{"000000000001", "000000000002"}));
  EXPECT_EQ(
      disk.list(kCheckpoints / "000000000002"),
      (Names{"MANIFEST", "empty", "moments.safetensors", "state.json", "weights.safetensors"}));
}

TEST(CheckpointStore, ReadsTensorsAsSafetensors) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  run.write(store, 10);
  const Safetensors weights(store.open_newest().generation->file("weights.safetensors"));
  ASSERT_EQ(weights.tensors().size(), 2u);
  EXPECT_EQ(weights.tensors()[0].name, "n") << "larger elements first";
  std::string read(1480, '\0');
  weights.read(weights.at("a"), 0, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, made_up_bytes(1480, 101));
  std::string part(700, '\0');
  weights.read(weights.at("a"), 333, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, read.substr(333, 700));
}

TEST(CheckpointStore, KeepsTheConfiguredNumber) {
  for (const int keep : {1, 2, 3}) {
    CrashFs disk;
    CheckpointRun run(disk);
    auto store = run.open(kCheckpoints, keep);
    for (std::uint64_t step = 1; step <= 5; ++step) run.write(store, step);
    Numbers expected;
    for (auto number = static_cast<std::uint64_t>(6 - keep); number <= 5; ++number)
      expected.push_back(number);
    EXPECT_EQ(store.generations(), expected);
    EXPECT_TRUE(store.verify().empty());
  }
}

/// Flips a byte in each named generation.
void damage(CrashFs& disk, const Numbers& numbers) {
  for (const auto number : numbers) {
    const auto file = disk.open(generation_path(kCheckpoints, number) / "weights.safetensors");
    std::byte byte{};
    disk.pread(file, {&byte, 1}, 700);
    byte ^= std::byte{1};
    disk.pwrite(file, {&byte, 1}, 700);
    disk.close(file);
  }
}

TEST(CheckpointStore, CountsOnlyIntactGenerationsAsKept) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  run.write(store, 1);
  run.write(store, 2);
  damage(disk, {2});
  const auto committed = store.write(made_up_content(3));
  EXPECT_EQ(store.generations(), (Numbers{1, 2, 3})) << "1 and 3 are the two sound ones";
  ASSERT_EQ(committed.findings.size(), 1u);
  EXPECT_EQ(committed.findings[0].generation, 2u);
  run.write(store, 4);
  EXPECT_EQ(store.generations(), (Numbers{3, 4}));
}

TEST(CheckpointStore, ReportsDamageAndOpensThePreviousGeneration) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open(kCheckpoints, 3);
  for (std::uint64_t step = 1; step <= 3; ++step) run.write(store, step);
  damage(disk, {2, 3});
  const auto newest = store.open_newest();
  EXPECT_EQ(newest.generation->number(), 1u);
  ASSERT_EQ(newest.findings.size(), 2u);
  EXPECT_EQ(newest.findings[0].generation, 3u);
  EXPECT_EQ(newest.findings[0].problem,
            "/checkpoints/000000000003/weights.safetensors is damaged between bytes 600 and 1200");
  EXPECT_EQ(store.verify().size(), 2u);
}

TEST(CheckpointStore, NamesEachGenerationIfAllAreDamaged) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  run.write(store, 1);
  run.write(store, 2);
  damage(disk, {1, 2});
  const auto error = thrown<CorruptData>([&] { store.open_newest(); });
  EXPECT_EQ(error.path, kCheckpoints);
  const std::string text = error.what();
  EXPECT_LT(text.find("checkpoint 2: "), text.find("checkpoint 1: ")) << text;
  EXPECT_NE(text.find("checkpoint 1: "), std::string::npos);
}

TEST(CheckpointStore, DetectsDamageAfterOpening) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  run.write(store, 1);
  const auto newest = store.open_newest();
  damage(disk, {1});
  const auto file = newest.generation->file("weights.safetensors");
  std::vector<std::byte> into(10);
  file.read(into, 0);
  EXPECT_THROW(file.read(into, 700), CorruptData);
  EXPECT_THROW(file.read(into, 595), CorruptData) << "that reaches into the damaged block";
  EXPECT_THROW(file.read(into, file.size - 9), CorruptData) << "behind the end";
}

TEST(CheckpointStore, RefusesANewerFormat) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  run.write(store, 1);
  disk.make_folder(kCheckpoints / "000000000002");
  auto manifest = OpenFile::create(disk, kCheckpoints / "000000000002/MANIFEST");
  std::string text = "spillway-checkpoint 3\n";
  text += "xxh3 " + xxh3(std::as_bytes(std::span(text))) + "\n";
  manifest.write_all(std::as_bytes(std::span(text)), 0);
  EXPECT_EQ(thrown<NewerFormat>([&] { store.open_newest(); }).version, 3u);
}

TEST(CheckpointStore, ReportsUnreadableFilesAsErrorsNotDamage) {
  CrashFs disk;
  FailingFs files(disk);
  CheckpointStore store(files, kCheckpoints);
  store.write(made_up_content(1));
  store.write(made_up_content(2));
  files.fail_with({.code = EACCES, .at = files.calls() + 1});
  EXPECT_EQ(thrown<IoError>([&] { store.open_newest(); }).code, EACCES);
  files.fail_with({.code = EIO, .at = files.calls() + 1});
  const auto newest = store.open_newest();
  EXPECT_EQ(newest.generation->number(), 1u) << "a block of the disk cannot be read";
  EXPECT_EQ(newest.findings.size(), 1u);
}

TEST(CheckpointStore, RemovesOnlyItsOwnLeftovers) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  run.write(store, 1);
  const auto touch = [&](const std::string& name) { OpenFile::create(disk, kCheckpoints / name); };
  disk.make_folder(kCheckpoints / "000000000002.tmp");
  touch("000000000002.tmp/weights.safetensors");
  touch("notes.tmp");
  touch("7");
  touch("0000000000001");
  auto again = run.open();
  EXPECT_EQ(disk.list(kCheckpoints), (Names{"0000000000001", "000000000001", "7", "notes.tmp"}));
  EXPECT_EQ(again.generations(), Numbers{1});
}

TEST(CheckpointStore, RemovesAFailedWriteAndSkipsItsNumber) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  run.write(store, 1);
  auto content = made_up_content(2);
  content.files[1].fill = [](auto, Bytes) { throw std::runtime_error("no state"); };
  EXPECT_THROW(store.write(content), std::runtime_error);
  EXPECT_EQ(disk.list(kCheckpoints), Names{"000000000001"});
  run.write(store, 3);
  EXPECT_EQ(store.generations(), (Numbers{1, 3}));
}

TEST(CheckpointStore, RefusesInvalidNamesBeforeWriting) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  const auto changes = disk.num_changes();
  for (const char* name : {"../evil", "MANIFEST", "", "state.json"}) {
    auto content = made_up_content(1);
    content.files[0].name = name;
    EXPECT_THROW(store.write(content), Error);
  }
  EXPECT_TRUE(store.generations().empty());
  EXPECT_EQ(disk.num_changes(), changes + 4) << "a sync of the folder each";
}

TEST(CheckpointStore, ChecksSpaceBeforeWriting) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  const auto content = made_up_content(1);
  const Bytes one = generation_bytes(content, CheckpointRun::kBlock);
  EXPECT_GT(one, 3_KiB);
  disk.set_capacity(one - 1);
  const auto error = thrown<OutOfMemory>([&] { store.write(content); });
  EXPECT_EQ(error.tier, Tier::disk);
  EXPECT_EQ(error.requested, one);
  EXPECT_EQ(error.available, one - 1);
  EXPECT_TRUE(disk.list(kCheckpoints).empty());
  disk.set_capacity(3 * one);  // the two that it keeps and the one that it writes
  for (std::uint64_t step = 1; step <= 4; ++step) run.write(store, step);
}

TEST(CheckpointStore, PreallocatesAllFilesBeforeWriting) {
  CrashFs disk;
  CheckpointRun run(disk);
  auto store = run.open();
  auto content = made_up_content(1);
  const auto fill = content.files[0].fill;
  std::vector<Bytes> sizes;
  content.files[0].fill = [&](std::span<std::byte> block, Bytes offset) {
    const auto folder = kCheckpoints / "000000000001.tmp";
    if (offset == 0)
      for (const auto& name : disk.list(folder))
        sizes.push_back(OpenFile::open(disk, folder / name).size());
    fill(block, offset);
  };
  store.write(content);
  const auto folder = kCheckpoints / "000000000001";
  std::vector<Bytes> final_sizes;
  for (const auto& name : disk.list(folder))
    final_sizes.push_back(OpenFile::open(disk, folder / name).size());
  EXPECT_EQ(sizes, final_sizes);
}

TEST(CheckpointStore, SyncsAfterTheLastBlock) {
  CrashFs disk;
  auto store = CheckpointRun(disk).open();
  auto content = made_up_content(1);
  auto& last = content.files[1];
  ASSERT_GT(last.bytes, 0u);
  bool is_any_synced = false;
  last.fill = [&, fill = last.fill](std::span<std::byte> block, Bytes offset) {
    for (const auto& [number, node] : disk.after_crash(disk.num_changes(), nullptr).nodes)
      is_any_synced = is_any_synced || !node.bytes.empty();
    fill(block, offset);
  };
  store.write(content);
  EXPECT_FALSE(is_any_synced);
  EXPECT_TRUE(is_right(*store.open_newest().generation));
}

TEST(CheckpointStore, RequestsEachBlockOnceInOrder) {
  CrashFs disk;
  CheckpointStore store(disk, kCheckpoints, {.block_bytes = 100});
  std::vector<std::pair<Bytes, std::size_t>> asked;
  GenerationContent content{.job = "job"};
  content.files.push_back({"data", 250, [&](std::span<std::byte> block, Bytes offset) {
                             asked.emplace_back(offset, block.size());
                           }});
  store.write(content);
  EXPECT_EQ(asked, (std::vector<std::pair<Bytes, std::size_t>>{{0, 100}, {100, 100}, {200, 50}}));
}

TEST(CheckpointStore, ReportsAnOldGenerationThatItCannotRemove) {
  CrashFs disk;
  FailingFs files(disk);
  CheckpointStore store(files, kCheckpoints);
  store.write(made_up_content(1));
  store.write(made_up_content(2));
  int at_record = 0;
  store.write(made_up_content(3), [&](std::uint64_t) { at_record = files.calls(); });
  ASSERT_GT(at_record, 0);
  disk.make_folder(kCheckpoints / "000000000002" / "foreign");
  const auto committed = store.write(made_up_content(4));
  ASSERT_EQ(committed.findings.size(), 1u);
  EXPECT_EQ(committed.findings[0].generation, 2u);
  EXPECT_EQ(store.open_newest().generation->manifest().step, 4u);
}

}  // namespace
}  // namespace spillway::testing
