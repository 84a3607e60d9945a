#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "models/data/token_files.h"
#include "spillway/data_source.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"

namespace spillway {
namespace {

using testing::TemporaryFolder;
using testing::thrown;
using Tokens = std::vector<std::int64_t>;

Tokens tokens_of(const std::string& text) {
  Tokens tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

Tokens read(const TokenFiles& files, std::uint64_t begin, std::uint64_t end) {
  Tokens out(end - begin, -1);
  files.read(begin, out);
  return out;
}

Tokens read(const DataSource& source, std::uint64_t sample) {
  Tokens out(static_cast<std::size_t>(source.sample_elements()), -1);
  source.read(sample, std::as_writable_bytes(std::span(out)));
  return out;
}

/// `n` bytes, the first 256 of them different.
std::string text_of(std::size_t n) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) text += static_cast<char>(i % 256);
  return text;
}

ConfigError error_of(const std::vector<std::string>& paths, double eval_fraction = 0,
                     std::int64_t sequence_length = 4) {
  return thrown<ConfigError>([&] { open_bytes(paths, sequence_length, eval_fraction); });
}

TEST(TokenFiles, AreConcatenated) {
  const TemporaryFolder folder;
  const TokenFiles files(
      {folder.write("b", "first"), folder.write("a", "2"), folder.write("c", "third")});
  const std::string whole = "first2third";
  ASSERT_EQ(files.size(), whole.size());
  for (std::size_t begin = 0; begin <= whole.size(); ++begin) {
    for (std::size_t end = begin; end <= whole.size(); ++end)
      EXPECT_EQ(read(files, begin, end), tokens_of(whole.substr(begin, end - begin)));
  }
}

TEST(TokenFiles, ReadBytesAsTokensFrom0To255) {
  const TemporaryFolder folder;
  const auto tokens = read(TokenFiles({folder.write("all", text_of(256))}), 0, 256);
  for (std::int64_t i = 0; i < 256; ++i) EXPECT_EQ(tokens[static_cast<std::size_t>(i)], i);
}

TEST(TokenFiles, ExpandAFolderInByteOrder) {
  const TemporaryFolder folder;
  folder.write("data/b", "4");
  folder.write("data/a/z/deep", "2");
  folder.write("data/a.txt", "1");  // '.' comes before '/'
  folder.write("data/empty", "");
  folder.write("data/B", "0");
  folder.write("data/a0", "3");
  folder.write("data/\xC3\xA9", "5");
  for (const std::string name : {"data", "data/"}) {
    const TokenFiles files({folder / name, folder / "data/b"});
    EXPECT_EQ(read(files, 0, files.size()), tokens_of("0123454"));
  }
}

TEST(TokenFiles, IgnoreOtherFilesOfAFolder) {
  const TemporaryFolder folder;
  folder.write("data/text", "yes");
  std::filesystem::create_symlink("/dev/zero", folder / "data/endless");
  std::filesystem::create_symlink("nowhere", folder / "data/broken");
  std::filesystem::create_symlink("text", folder / "data/zlink");
  const TokenFiles files({folder / "data"});
  EXPECT_EQ(read(files, 0, files.size()), tokens_of("yesyes"));
}

TEST(TokenFiles, StayReadableAfterTheirRemoval) {
  const TemporaryFolder folder;
  const TokenFiles files({folder.write("a", "abc"), folder.write("b", "def")});
  std::filesystem::remove(folder / "a");
  std::filesystem::remove(folder / "b");
  EXPECT_EQ(read(files, 0, 6), tokens_of("abcdef"));
}

TEST(TokenFiles, NameAnUnreadableFile) {
  const TemporaryFolder folder;
  const auto good = folder.write("good", "text"), empty = folder.write("empty", "");
  folder.write("empties/a/none", "");
  const auto problem = [&](const std::string& path) {
    const auto error = thrown<ConfigError>([&] { TokenFiles({good, path}); });
    EXPECT_EQ(error.field, "data.path");
    EXPECT_EQ(error.line, 0);
    return error.problem;
  };
  const auto missing = folder / "missing", empties = folder / "empties";
  EXPECT_EQ(problem(missing), "'" + missing + "' cannot be read: No such file or directory");
  EXPECT_EQ(problem(good + "/x"), "'" + good + "/x' cannot be read: Not a directory");
  EXPECT_EQ(problem(empty), "'" + empty + "' is empty; name files that have bytes");
  EXPECT_EQ(problem(empties), "'" + empties + "' is a folder without a file that has bytes");
  EXPECT_EQ(problem("/dev/null"), "'/dev/null' is neither a regular file nor a folder");
  EXPECT_EQ(thrown<ConfigError>([] { TokenFiles({}); }).problem,
            "names no file; give a file or a folder");
}

TEST(TokenSource, OverlapsNeighbouringSamplesByOneToken) {
  const TemporaryFolder folder;
  const auto path = folder.write("text", "abcdefghijkl");  // 12 bytes: the last 3 start no sample
  const auto split = open_bytes({path}, 4, 0);
  EXPECT_EQ(split.eval, nullptr);
  EXPECT_EQ(split.train->num_samples(), 2u);
  EXPECT_EQ(split.train->sample_elements(), 5);
  EXPECT_EQ(read(*split.train, 0), tokens_of("abcde"));
  EXPECT_EQ(read(*split.train, 1), tokens_of("efghi"));
}

/// Across the ends of files and of blocks that are read at once, in both parts.
TEST(TokenSource, ReadsRowsAsSingleSamples) {
  const TemporaryFolder folder;
  const auto split =
      open_bytes({folder.write("a", text_of(70'001)), folder.write("b", text_of(999))}, 7, 0.3);
  for (const DataSource* source : {split.train.get(), split.eval.get()}) {
    Tokens rows(static_cast<std::size_t>((source->num_samples() - 1) * 8), -1), expected;
    source->read_rows(1, std::as_writable_bytes(std::span(rows)));
    for (std::uint64_t i = 1; i < source->num_samples(); ++i) {
      const Tokens row = read(*source, i);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    EXPECT_EQ(rows, expected);
  }
}

TEST(TokenSource, EndsWithACompleteSample) {
  const TemporaryFolder folder;
  EXPECT_EQ(open_bytes({folder.write("a", text_of(12))}, 4, 0).train->num_samples(), 2u);
  EXPECT_EQ(open_bytes({folder.write("b", text_of(13))}, 4, 0).train->num_samples(), 3u);
}

TEST(TokenSource, ReservesTheLastSamplesForEvaluation) {
  const TemporaryFolder folder;
  const auto path = folder.write("text", text_of(41));  // 10 samples
  const auto whole = open_bytes({path}, 4, 0);
  for (const auto& [fraction, num_eval] :
       {std::pair{0.05, 1u}, {0.24, 2u}, {0.26, 3u}, {0.5, 5u}, {0.94, 9u}}) {
    const auto split = open_bytes({path}, 4, fraction);
    ASSERT_EQ(split.eval->num_samples(), num_eval) << fraction;
    ASSERT_EQ(split.train->num_samples(), 10 - num_eval);
    for (std::uint64_t i = 0; i < 10 - num_eval; ++i)
      EXPECT_EQ(read(*split.train, i), read(*whole.train, i));
    for (std::uint64_t i = 0; i < num_eval; ++i)
      EXPECT_EQ(read(*split.eval, i), read(*whole.train, 10 - num_eval + i));
  }
}

TEST(TokenSource, KeepsPartsAfterTheSplit) {
  const TemporaryFolder folder;
  auto eval = open_bytes({folder.write("text", text_of(41))}, 4, 0.5).eval;
  EXPECT_EQ(read(*eval, 0), (Tokens{20, 21, 22, 23, 24}));
}

TEST(TokenSource, NamesTheSizesOfTooLittleText) {
  const TemporaryFolder folder;
  const auto error = error_of({folder.write("text", "abcd")});
  EXPECT_EQ(error.field, "data.path");
  EXPECT_EQ(error.problem,
            "has 4 bytes, but a sample needs 5, one more than its sequence length; add data or use "
            "shorter sequences");
}

TEST(TokenSource, RefusesAnImpossibleEvaluationShare) {
  const TemporaryFolder folder;
  const auto path = folder.write("text", text_of(41));
  for (const double fraction : {-0.1, 1.0, 7.0, std::numeric_limits<double>::quiet_NaN()}) {
    const auto error = error_of({path}, fraction);
    EXPECT_EQ(error.field, "data.eval_fraction");
    EXPECT_NE(error.problem.find("must be at least 0 (no evaluation) and below 1"),
              std::string::npos);
  }
  const auto too_small = error_of({path}, 0.04), too_large = error_of({path}, 0.96);
  EXPECT_EQ(too_small.field, "data.eval_fraction");
  EXPECT_EQ(
      too_small.problem,
      "is 0.04, which leaves none of the 10 samples for evaluation; raise it, or use 0 for no "
      "evaluation");
  EXPECT_EQ(too_large.field, "data.eval_fraction");
  EXPECT_EQ(too_large.problem,
            "is 0.96, which leaves none of the 10 samples for training; lower it");
}

/// `tokens` as `width` bytes each, the lowest first.
std::string encoded(const Tokens& tokens, int width) {
  std::string bytes;
  for (const std::int64_t token : tokens) {
    for (int b = 0; b < width; ++b) bytes += static_cast<char>(token >> (8 * b) & 255);
  }
  return bytes;
}

Tokens all_samples(const DataSource& source) {
  Tokens all;
  for (std::uint64_t i = 0; i < source.num_samples(); ++i) {
    const Tokens sample = read(source, i);
    all.insert(all.end(), sample.begin(), sample.end());
  }
  return all;
}

TEST(TokenSource, ReadsLittleEndianTokens) {
  const TemporaryFolder folder;
  const Tokens tokens{0, 1, 255, 256, 0xFFFF, 0x1234, 7};
  const Tokens windows{0, 1, 255, 255, 256, 0xFFFF, 0xFFFF, 0x1234, 7};
  // The first file ends in the middle of a sample.
  const std::string two = encoded(tokens, 2), four = encoded(tokens, 4);
  const std::vector<std::string> twos{folder.write("a2", two.substr(0, 8)),
                                      folder.write("b2", two.substr(8))};
  const std::vector<std::string> fours{folder.write("a4", four.substr(0, 16)),
                                       folder.write("b4", four.substr(16))};
  EXPECT_EQ(all_samples(*open_tokens(twos, TokenType::uint16, 1 << 16, 2, 0).train), windows);
  EXPECT_EQ(all_samples(*open_tokens(fours, TokenType::uint32, 1 << 16, 2, 0).train), windows);
}

TEST(TokenSource, ReadsTheLargestTokenAsPositive) {
  const TemporaryFolder folder;
  const Tokens tokens{0xFFFFFFFF, 0x80000000};
  const auto path = folder.write("a", encoded(tokens, 4));
  EXPECT_EQ(all_samples(*open_tokens({path}, TokenType::uint32, std::int64_t{1} << 32, 1, 0).train),
            tokens);
}

TEST(TokenSource, NamesATokenOutsideTheVocabulary) {
  const TemporaryFolder folder;
  const auto good = folder.write("good", encoded({1, 2, 3}, 2));
  const auto bad = folder.write("bad", encoded({4, 99, 100, 101}, 2));
  EXPECT_NO_THROW(open_tokens({good, bad}, TokenType::uint16, 102, 2, 0));
  const auto error = thrown<ConfigError>([&] {
    open_tokens({good, bad}, TokenType::uint16, 100, 2, 0);
  });
  EXPECT_EQ(error.field, "data.path");
  EXPECT_EQ(error.problem, "'" + bad +
                               "' has token 100 at position 2, but model.vocab_size is 100; raise "
                               "it, or check data.dtype");
}

TEST(TokenSource, RefusesAPartialToken) {
  const TemporaryFolder folder;
  const auto good = folder.write("good", "12345678"), odd = folder.write("odd", "123456");
  EXPECT_NO_THROW(open_tokens({odd}, TokenType::uint16, 1 << 16, 2, 0));
  const auto error = thrown<ConfigError>([&] {
    open_tokens({good, odd}, TokenType::uint32, 9, 2, 0);
  });
  EXPECT_EQ(error.field, "data.path");
  EXPECT_EQ(error.problem, "'" + odd +
                               "' has 6 bytes, which is not a multiple of 4, the size of a token; "
                               "check the file and data.dtype");
  EXPECT_EQ(
      thrown<ConfigError>([&] { open_tokens({good}, TokenType::uint16, 1 << 16, 4, 0); }).problem,
      "has 4 tokens, but a sample needs 5, one more than its sequence length; add data or use "
      "shorter sequences");
}

TEST(TokenSource, RefusesAnEmptySequence) {
  const TemporaryFolder folder;
  const auto path = folder.write("text", text_of(41));
  EXPECT_THROW(open_bytes({path}, 0, 0), Error);
  EXPECT_THROW(open_bytes({path}, -3, 0), Error);
}

}  // namespace
}  // namespace spillway
