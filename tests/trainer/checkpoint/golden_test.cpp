#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/disk/temporary_folder.h"
#include "tests/support/run/checkpoint_run.h"
#include "trainer/checkpoint/checkpoint_store.h"

/// Files of every released version stay readable, and are still written the same way.
namespace spillway::testing {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(SPILLWAY_SOURCE_DIR) / "tests/golden";

std::vector<std::byte> counted_bytes(Bytes size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  return bytes;
}

/// The content of the golden generation. It never changes: a new version gets its own folder.
GenerationContent golden_content() {
  const std::vector<TensorEntry> tensors{{.name = "wte.weight", .dtype = "F32", .shape = {5, 4}},
                                         {.name = "steps", .dtype = "I64", .shape = {}},
                                         {.name = "none", .dtype = "F32", .shape = {0, 3}}};
  const auto fill = [](const TensorEntry& tensor, std::span<std::byte> into, Bytes offset) {
    const auto bytes = counted_bytes(tensor.bytes());
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
  };
  return {.job = "gpt lr=0.1",
          .step = 42,
          .build = "0.1.0",
          .contract = {{"data.path", "a b%"}, {"model.hidden", "512"}, {"seed", "7"}},
          .files = {safetensors_file("weights.safetensors", tensors, fill),
                    bytes_file("state.json", "{\"step\":42}"), bytes_file("empty", "")}};
}
constexpr CheckpointOptions kOptions{.block_bytes = 128};

/// Version 2 may leave out parameters that the model can write again.
class GoldenCheckpoints : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  fs::path golden() const { return kGolden / fmt::format("checkpoints_{}", GetParam()); }
};

TEST_P(GoldenCheckpoints, AreReadable) {
  const TemporaryFolder folder;
  fs::copy(golden(), folder / "checkpoints", fs::copy_options::recursive);
  CheckpointStore store(posix_file_system(), folder / "checkpoints");
  const auto newest = store.open_newest();
  ASSERT_TRUE(newest.generation);
  EXPECT_TRUE(newest.findings.empty());
  const auto content = golden_content();
  EXPECT_EQ(newest.generation->manifest().version, GetParam());
  EXPECT_EQ(newest.generation->manifest().job, content.job);
  EXPECT_EQ(newest.generation->manifest().step, 42u);
  EXPECT_EQ(newest.generation->manifest().contract, content.contract);
  for (const auto& file : content.files)
    EXPECT_EQ(bytes_of(newest.generation->file(file.name)), bytes_of(file)) << file.name;
  const Safetensors weights(newest.generation->file("weights.safetensors"));
  std::vector<std::byte> read(80);
  weights.read(weights.at("wte.weight"), 0, read);
  EXPECT_EQ(read, counted_bytes(80));
}

INSTANTIATE_TEST_SUITE_P(Versions, GoldenCheckpoints, ::testing::Values(1u, 2u));

TEST(Golden, WritesCheckpointsOfVersion2) {
  const TemporaryFolder folder;
  CheckpointStore store(posix_file_system(), folder / "checkpoints", kOptions);
  store.write(golden_content());
  const TemporaryFolder golden;
  fs::copy(kGolden / "checkpoints_2", golden / "checkpoints", fs::copy_options::recursive);
  for (const std::string name : {"MANIFEST", "weights.safetensors", "state.json", "empty"}) {
    const auto path = "checkpoints/000000000001/" + name;
    EXPECT_EQ(folder.read(path), golden.read(path)) << name;
  }
}

/// Written by the Python package, version 0.8: other types, another order, metadata.
TEST(Golden, ReadsSafetensorsOfPython) {
  const Safetensors file(file_source(posix_file_system(), kGolden / "python.safetensors"));
  EXPECT_EQ(file.metadata(), (TensorMetadata{{"made_by", "safetensors 0.8"}}));
  ASSERT_EQ(file.tensors().size(), 5u);
  EXPECT_EQ(file.at("i64").dtype, "I64");
  EXPECT_EQ(file.at("f16").shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(file.at("u8").bytes(), 3u);
  EXPECT_EQ(file.at("none").bytes(), 0u);
  std::vector<float> read(3);
  file.read(file.at("f32"), 0, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, (std::vector<float>{1.5f, -2.0f, 0.25f}));
}

}  // namespace
}  // namespace spillway::testing
