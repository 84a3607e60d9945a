#include "trainer/storage/weights_file.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/os/open_file.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/failing_fs.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

using testing::CrashFs;
using testing::FailingFs;
using testing::Fault;
using testing::TemporaryFolder;
using testing::thrown;
using Arrays = std::vector<NamedArray>;
using Bits = std::span<const std::byte>;

const std::vector<float> kWeightValues{1.0f, -2.5f}, kScalarValues{0.5f};
const std::vector<std::int64_t> kCountValues{77};

template <typename Values>
Bits bits_of(const Values& values) {
  return std::as_bytes(std::span(values));
}
const Bits kWeight = bits_of(kWeightValues), kScalar = bits_of(kScalarValues),
           kCount = bits_of(kCountValues);

Arrays two_arrays() { return {array_of("w", {2, 1}, kWeight), array_of("scalar", {}, kScalar)}; }

template <std::size_t N>
std::string bytes(const char (&text)[N]) {
  return {text, N - 1};  // zero bytes included
}

/// 1.0, -2.5 and 0.5 as little-endian fp32.
const std::string kWeightBytes = bytes("\x00\x00\x80\x3F\x00\x00\x20\xC0");
const std::string kScalarBytes = bytes("\x00\x00\x00\x3F");

/// The header, checked for length and alignment, without the 8 bytes of length.
std::string header_and_data(const std::string& file) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof header_bytes);
  EXPECT_EQ(header_bytes % 8, 0u);
  EXPECT_EQ(file.at(8), '{');
  EXPECT_LE(8 + header_bytes, file.size());
  return file.substr(8);
}

std::string written(const Arrays& arrays) {
  const TemporaryFolder folder;
  write_safetensors(folder / "w.safetensors", arrays);
  return folder.read("w.safetensors");
}

TEST(Safetensors, WritesExactlyTheseBytes) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                             R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})"
                             "       ";
  ASSERT_EQ(header.size(), 152u);
  EXPECT_EQ(written(two_arrays()),
            bytes("\x98\0\0\0\0\0\0\0") + header + kWeightBytes + kScalarBytes);
}

std::string hash_of_file(const TemporaryFolder& folder) {
  return weights_xxh3(arrays_in(file_source(posix_file_system(), folder / "w.safetensors")));
}

TEST(Safetensors, HashesTheWrittenBytes) {
  const TemporaryFolder folder;
  const Arrays mixed{array_of("w", {2, 1}, kWeight), array_of("count", {}, kCount, DType::i64),
                     array_of("scalar", {}, kScalar)};
  for (const Arrays& arrays : {two_arrays(), mixed}) {
    write_safetensors(folder / "w.safetensors", arrays);
    EXPECT_EQ(hash_of_file(folder), weights_xxh3(arrays));
  }
  std::string bytes = folder.read("w.safetensors");
  bytes.back() ^= 1;
  folder.write("w.safetensors", bytes);
  EXPECT_NE(hash_of_file(folder), weights_xxh3(mixed));
}

TEST(Safetensors, WritesIntegersFirstForAlignment) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("s":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
                             R"("n":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})";
  const std::string rest =
      header_and_data(written({array_of("s", {}, kScalar), array_of("n", {}, kCount, DType::i64)}));
  EXPECT_TRUE(rest.starts_with(header)) << rest;
  EXPECT_TRUE(rest.ends_with(bytes("\x4D\0\0\0\0\0\0\0") + kScalarBytes));
}

TEST(Safetensors, AlignsDataForEveryHeaderLength) {
  for (std::size_t length = 1; length <= 16; ++length) {
    const auto rest = header_and_data(written({array_of(std::string(length, 'n'), {2}, kWeight)}));
    EXPECT_EQ(rest.size() % 8, 0u) << length;
    EXPECT_TRUE(rest.ends_with(kWeightBytes));
  }
}

TEST(Safetensors, EscapesNames) {
  const auto file = written({array_of("a\"b\\c\n\x01\xC3\xA9", {0}, {})});
  EXPECT_NE(file.find(R"("a\"b\\c\n\u0001)"
                      "\xC3\xA9\":{"),
            std::string::npos);
}

TEST(Safetensors, WritesAFileWithoutArrays) {
  EXPECT_EQ(written({}), bytes("\x20\0\0\0\0\0\0\0") + R"({"__metadata__":{"format":"pt"}})");
}

TEST(Safetensors, ReplacesTheOldFile) {
  const TemporaryFolder folder;
  const auto path = folder.write("w", std::string(10'000, 'x'));
  folder.write("w.tmp", "left by a crash");
  write_safetensors(path, two_arrays());
  EXPECT_EQ(folder.read("w"), written(two_arrays()));
  EXPECT_FALSE(std::filesystem::exists(folder / "w.tmp"));
}

TEST(Safetensors, KeepsOnlyTheOldFileAfterAFailure) {
  for (int at = 0, failed = 1; failed > 0; ++at) {
    CrashFs disk;
    write_safetensors("/w", two_arrays(), disk);
    const auto old = read_file(disk, "/w", 1_MiB);
    FailingFs files(disk, Fault{.code = ENOSPC, .at = at});
    try {
      write_safetensors("/w", std::vector{two_arrays().front()}, files);
    } catch (const IoError& error) {
      EXPECT_EQ(error.code, ENOSPC);
      const bool replaced = error.path == "/";  // only the name is not durable yet
      EXPECT_EQ(read_file(disk, "/w", 1_MiB) == old, !replaced) << error.what();
    }
    EXPECT_EQ(disk.list("/"), std::vector<std::string>{"w"}) << at;
    failed = files.num_failed();
  }
}

TEST(Safetensors, RemovesItsFileAfterAFailedRename) {
  const TemporaryFolder folder;
  folder.write("w/inside", "kept");
  const auto error = thrown<IoError>([&] { write_safetensors(folder / "w", two_arrays()); });
  EXPECT_EQ(error.code, EISDIR);
  EXPECT_EQ(error.path, folder / "w");
  EXPECT_EQ(folder.read("w/inside"), "kept");
  EXPECT_FALSE(std::filesystem::exists(folder / "w.tmp"));
}

TEST(Safetensors, ReportsAMissingFolder) {
  const TemporaryFolder folder;
  const auto error = thrown<IoError>([&] { write_safetensors(folder / "no/w", two_arrays()); });
  EXPECT_EQ(error.code, ENOENT);
  EXPECT_EQ(error.path, folder / "no/w.tmp");
}

TEST(WeightsXxh3, HashesTheDocumentedBytes) {
  const std::string hashed = bytes("w\0\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0") +
                             kWeightBytes + bytes("scalar\0\0\0\0\0\0\0\0\0") + kScalarBytes;
  const XXH128_hash_t hash = XXH3_128bits(hashed.data(), hashed.size());
  std::array<char, 33> hex{};
  std::snprintf(hex.data(), hex.size(), "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  EXPECT_EQ(weights_xxh3(two_arrays()), hex.data());
  EXPECT_EQ(weights_xxh3(two_arrays()), "82f031aa3b8d4acc588b81ffad04fcde");
  EXPECT_EQ(weights_xxh3({}), "99aa06d3014798d86001c324468d497f") << "of no bytes";
}

TEST(WeightsXxh3, DependsOnEverythingThatDistinguishesWeights) {
  const std::vector<float> other_value{1.0f, -2.5000002f}, swapped{-2.5f, 1.0f};
  const std::vector<float> zeros{0.0f, 0.0f}, negative_zero{0.0f, -0.0f};
  const auto of = [](const Arrays& arrays) { return weights_xxh3(arrays); };
  const auto base = of(two_arrays());
  EXPECT_EQ(of(two_arrays()), base);
  const NamedArray scalar = array_of("scalar", {}, kScalar);
  EXPECT_NE(of({array_of("v", {2, 1}, kWeight), scalar}), base) << "name";
  EXPECT_NE(of({array_of("w", {1, 2}, kWeight), scalar}), base) << "shape";
  EXPECT_NE(of({array_of("w", {2}, kWeight), scalar}), base) << "rank";
  EXPECT_NE(of({array_of("w", {2, 1}, bits_of(other_value)), scalar}), base) << "last bit";
  EXPECT_NE(of({array_of("w", {2, 1}, bits_of(swapped)), scalar}), base) << "elements";
  EXPECT_NE(of({scalar, array_of("w", {2, 1}, kWeight)}), base) << "order of arrays";
  EXPECT_NE(of({array_of("w", {2, 1}, kWeight)}), base) << "number of arrays";
  EXPECT_NE(of({array_of("z", {2}, bits_of(zeros))}),
            of({array_of("z", {2}, bits_of(negative_zero))}))
      << "sign of zero";
}

}  // namespace
}  // namespace spillway
