#include "core/safetensors/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/crash_fs.h"
#include "trainer/storage/atomic_file.h"
#include "trainer/storage/weights_file.h"

namespace spillway {
namespace {

using testing::CrashFs;
using testing::thrown;

/// Also counts the bytes read, in total and at once.
struct Source {
  std::string bytes;
  Bytes most_at_once = 0;

  ByteSource view() {
    return {.path = "/w.safetensors", .size = bytes.size(), .read = [this](auto into, Bytes at) {
              if (at > bytes.size() || into.size() > bytes.size() - at)
                throw std::logic_error("read behind the end");
              most_at_once = std::max<Bytes>(most_at_once, into.size());
              std::memcpy(into.data(), bytes.data() + at, into.size());
            }};
  }
};

std::string with_header(const std::string& json, const std::string& data) {
  const std::uint64_t length = json.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + json + data;
}

std::string problem_of(std::string file) {
  Source source{std::move(file)};
  const auto error = thrown<CorruptData>([&] { Safetensors reader(source.view()); });
  EXPECT_EQ(error.path, "/w.safetensors");
  return error.what();
}

void expect_refused(const std::string& json, const std::string& data, const std::string& why) {
  const auto problem = problem_of(with_header(json, data));
  EXPECT_NE(problem.find(why), std::string::npos) << json << "\n" << problem;
}

std::string tensor(const std::string& name, const std::string& shape, int begin, int end,
                   const std::string& dtype = "F32") {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(SafetensorsReader, RoundTrips) {
  CrashFs files;
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> counts{7};
  const auto bits = [](const auto& all) { return std::as_bytes(std::span(all)); };
  write_safetensors("/w",
                    std::vector{array_of("w", {2, 3}, bits(values)), array_of("none", {0, 9}, {}),
                                array_of("\"\n\xC3\xA9", {}, bits(counts), DType::i64)},
                    files);
  const Safetensors reader(file_source(files, "/w"));
  ASSERT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.metadata(), (TensorMetadata{{"format", "pt"}}));
  EXPECT_EQ(reader.tensors()[0], (TensorEntry{"\"\n\xC3\xA9", "I64", {}, 0, 8}));
  EXPECT_EQ(reader.at("w"), (TensorEntry{"w", "F32", {2, 3}, 8, 32}));
  EXPECT_EQ(reader.at("none").bytes(), 0u);
  std::vector<float> read(2);
  reader.read(reader.at("w"), 12, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, (std::vector<float>{4, 5}));
  EXPECT_THROW(reader.at("other"), CorruptData);
}

TEST(SafetensorsReader, AcceptsAnyOrderAndSpaces) {
  Source source{with_header("{ " + tensor("b", "[1]", 4, 8) + " ,\n" +
                                tensor("e", "[0]", 4, 4, "U8") + "," + tensor("a", "[1]", 0, 4) +
                                "}   ",
                            "aaaabbbb")};
  const Safetensors reader(source.view());
  ASSERT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.tensors()[0].name, "a");
  EXPECT_EQ(reader.tensors()[1].name, "e");
  EXPECT_EQ(reader.tensors()[2].name, "b");
  EXPECT_TRUE(reader.metadata().empty());
}

TEST(SafetensorsReader, KnowsTheSizeOfEveryType) {
  const std::vector<std::pair<std::string, int>> types{
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (const auto& [name, size] : types) {
    Source source{with_header("{" + tensor("t", "[3]", 0, 3 * size, name) + "}",
                              std::string(static_cast<std::size_t>(3 * size), 'x'))};
    EXPECT_EQ(Safetensors(source.view()).at("t").dtype, name);
  }
  for (const char* name : {"F31", "", "f32", "F4"})
    expect_refused("{" + tensor("t", "[]", 0, 4, name) + "}", "1234", "unknown type");
}

TEST(SafetensorsReader, RefusesHolesAndOverlaps) {
  expect_refused("{" + tensor("a", "[1]", 4, 8) + "}", "12345678", "begins at byte 4, but");
  expect_refused("{" + tensor("a", "[1]", 0, 4) + "," + tensor("b", "[1]", 8, 12) + "}",
                 "123456789012",
                 "tensor 'b' begins at byte 8, but the previous tensor ends at byte 4");
  expect_refused("{" + tensor("a", "[2]", 0, 8) + "," + tensor("b", "[1]", 4, 8) + "}", "12345678",
                 "tensor 'b' begins at byte 4");
  expect_refused("{" + tensor("a", "[1]", 0, 4) + "," + tensor("b", "[1]", 0, 4) + "}", "1234",
                 "begins at byte 0");
  expect_refused("{" + tensor("a", "[2]", 0, 8) + "," + tensor("b", "[0]", 4, 4) + "}", "12345678",
                 "tensor 'b' begins at byte 4");
  expect_refused("{" + tensor("a", "[1]", 0, 4) + "}", "12345", "holds 5 bytes of data");
  expect_refused("{" + tensor("a", "[1]", 0, 4) + "}", "123", "holds 3 bytes of data");
  expect_refused("{}", "1", "holds 1 bytes of data");
}

TEST(SafetensorsReader, RefusesBytesThatDoNotFitTypeAndShape) {
  for (const auto& json :
       {tensor("a", "[2]", 0, 4), tensor("a", "[0]", 0, 4), tensor("a", "[1,1,2]", 0, 4),
        tensor("a", "[1]", 0, 4, "F64"), tensor("a", "[4611686018427387905]", 0, 4),
        tensor("a", "[4294967296,4294967296,4294967296]", 0, 4),
        tensor("a", "[9223372036854775807,2]", 0, 4)})
    expect_refused("{" + json + "}", "1234", "do not match its type and shape");
  expect_refused("{" + tensor("a", "[1]", 4, 0) + "}", "1234", "begins at byte 4");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,9223372036854775807]}})",
                 "1234", "do not match");
}

TEST(SafetensorsReader, LimitsTheRank) {
  const auto ones = [](int rank) {
    std::string shape = "1";
    for (int i = 1; i < rank; ++i) shape += ",1";
    return "[" + shape + "]";
  };
  Source most{with_header("{" + tensor("a", ones(64), 0, 4) + "}", "1234")};
  EXPECT_EQ(Safetensors(most.view()).at("a").shape.size(), 64u);
  expect_refused("{" + tensor("a", ones(65), 0, 4) + "}", "1234", "too many numbers in shape");
}

TEST(SafetensorsReader, RefusesDuplicateNames) {
  expect_refused("{" + tensor("a", "[1]", 0, 4) + "," + tensor("a", "[1]", 4, 8) + "}", "12345678",
                 "has 'a' twice");
  expect_refused(R"({"__metadata__":{"k":"1","k":"2"}})", "", "has 'k' twice");
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", "", "has '__metadata__' twice");
  expect_refused(R"({"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}})", "1234",
                 "has 'dtype' twice");
  expect_refused("{" + tensor("a", "[1]", 0, 4) + "," + tensor("\\u0061", "[0]", 4, 4) + "}",
                 "1234", "has 'a' twice");
}

TEST(SafetensorsReader, RefusesOtherHeaders) {
  for (const char* json :
       {"",
        "null",
        "[]",
        "x{}",
        " {}",
        "{",
        "{}{}",
        R"({"a":1})",
        R"({"a":null})",
        R"({"a":[]})",
        R"({"a":"text"})",
        R"({"a":{}})",
        R"({"a":{"dtype":"F32"}})",
        R"({"a":{"dtype":"F32","shape":[]}})",
        R"({"a":{"dtype":1,"shape":[],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":{},"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[[0]],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":["0"],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0.0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[true],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[{}],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0,18446744073709551616],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0]}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":0}})",
        R"({"a":{"dtype":["U8"],"shape":[0],"data_offsets":[0,0]}})",
        R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":[0]}})",
        R"({"__metadata__":{"k":1}})",
        R"({"__metadata__":{"k":{}}})",
        R"({"__metadata__":"k"})",
        R"({"__metadata__":[]})",
        "{\"\xFF\":{}}"})
    EXPECT_FALSE(problem_of(with_header(json, "")).empty()) << json;
  expect_refused(R"({"a":{)" + std::string(100'000, '['), "", "is not JSON");
}

TEST(SafetensorsReader, RefusesAShortFileBeforeAllocating) {
  for (const auto& [file, why] : std::vector<std::pair<std::string, std::string>>{
           {"", "shorter than 8 bytes"},
           {"1234567", "shorter than 8 bytes"},
           {std::string("\x01\0\0\0\0\0\0\0", 8), "header has 1 bytes"},
           {std::string("\0\0\0\0\0\0\0\x80{}", 10), "header has 9223372036854775808 bytes"},
           {std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10), "header has 1844674407370955"}})
    EXPECT_NE(problem_of(file).find(why), std::string::npos) << problem_of(file);
}

TEST(SafetensorsReader, RefusesATooLargeHeaderUnread) {
  Source source;
  auto view = source.view();
  view.size = Bytes{1} << 40;
  view.read = [&](auto into, Bytes at) {
    const std::uint64_t length = 100'000'001;
    ASSERT_LE(at + into.size(), 9u) << "nothing but the first bytes is read";
    std::memcpy(into.data(), &length, std::min(into.size(), sizeof length));
  };
  const auto error = thrown<CorruptData>([&] { Safetensors reader(view); });
  EXPECT_NE(std::string(error.what()).find("limit is 100000000"), std::string::npos);
}

TEST(SafetensorsReader, RefusesPyTorchFilesWithARemedy) {
  for (const auto& file : {std::string("PK\x03\x04rest of an archive"),
                           std::string("\x80\x02}q\0rest", 9), std::string("\x80\x05")})
    EXPECT_NE(problem_of(file).find("safetensors.torch.save_file"), std::string::npos);
}

/// The first byte of their length, 0x80, is that of a pickle.
TEST(SafetensorsReader, AcceptsHeadersThatStartLikePickles) {
  for (const std::size_t length : {128u, 640u}) {
    Source source{with_header("{}" + std::string(length - 2, ' '), "")};
    EXPECT_TRUE(Safetensors(source.view()).tensors().empty());
  }
}

TEST(SafetensorsReader, RefusesEveryTruncation) {
  const auto whole = with_header("{" + tensor("a", "[2]", 0, 8) + "}", "12345678");
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(problem_of(whole.substr(0, length)).empty()) << length;
}

TEST(SafetensorsReader, SurvivesAnyFileWithinItsBounds) {
  const auto whole = with_header(R"({"__metadata__":{"k":"v"},)" + tensor("a", "[2]", 0, 8) + "," +
                                     tensor("b", "[1,3]", 8, 20) + "}",
                                 std::string(20, 'd'));
  std::mt19937 random(1);
  int sound = 0;
  for (int run = 0; run < 20'000; ++run) {
    Source source{whole};
    for (auto edits = 1 + random() % 3; edits > 0; --edits)
      source.bytes[random() % source.bytes.size()] =
          random() % 2 == 0 ? static_cast<char>(random()) : "0123456789[]{},:\""[random() % 17];
    try {
      const Safetensors reader(source.view());
      ++sound;
      for (const auto& entry : reader.tensors()) {
        std::vector<std::byte> into(entry.bytes());
        reader.read(entry, 0, into);
      }
    } catch (const CorruptData&) {
    }
    EXPECT_LE(source.most_at_once, source.bytes.size());
  }
  EXPECT_GT(sound, 0) << "those whose data changed";
}

}  // namespace
}  // namespace spillway
