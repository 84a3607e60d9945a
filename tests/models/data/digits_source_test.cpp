#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/data_source.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/digits.h"

namespace spillway {
namespace {

using testing::TemporaryFolder;
using testing::thrown;
using DigitRow = std::vector<std::int64_t>;

DigitRow row_of(const DataSource& source, std::uint64_t sample) {
  DigitRow row(static_cast<std::size_t>(source.sample_elements()), -1);
  source.read(sample, std::as_writable_bytes(std::span(row)));
  return row;
}

/// A line whose pixels are all `pixel`.
std::string line_of(int pixel, int digit) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += std::to_string(pixel) + ",";
  return line + std::to_string(digit);
}

TEST(DigitsSource, ReadsALineAsASample) {
  const TemporaryFolder folder;
  const auto source =
      open_digits({folder.write("a", line_of(16, 9) + "\n" + line_of(0, 0) + "\r\n"),
                   folder.write("b", line_of(3, 7))},
                  0)
          .train;
  ASSERT_EQ(source->num_samples(), 3u);
  ASSERT_EQ(source->sample_elements(), 65);
  const std::vector<std::pair<int, int>> expected{{16, 9}, {0, 0}, {3, 7}};
  for (std::uint64_t i = 0; i < 3; ++i) {
    DigitRow row(65, expected[i].first);
    row.back() = expected[i].second;
    EXPECT_EQ(row_of(*source, i), row);
  }
}

TEST(DigitsSource, ReservesTheLastSamplesForEvaluation) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 10; ++i) text += line_of(i, i) + "\n";
  const auto split = open_digits({folder.write("a", text)}, 0.3);
  EXPECT_EQ(split.train->num_samples(), 7u);
  ASSERT_EQ(split.eval->num_samples(), 3u);
  EXPECT_EQ(row_of(*split.train, 6), DigitRow(65, 6));
  EXPECT_EQ(row_of(*split.eval, 0), DigitRow(65, 7));
}

TEST(DigitsSource, NamesAnInvalidLine) {
  const TemporaryFolder folder;
  const std::string good = line_of(1, 1);
  for (const std::string& bad :
       {line_of(17, 1), line_of(1, 10), good + ",1", good.substr(2), std::string(), good + " ",
        line_of(-1, 1), "x" + good, std::string("1.0") + good.substr(1)}) {
    const auto path = folder.write("a", good + "\n" + bad + "\n" + good);
    const auto error = thrown<ConfigError>([&] { open_digits({path}, 0); });
    EXPECT_EQ(error.field, "data.path") << bad;
    EXPECT_EQ(error.problem,
              "'" + path +
                  "' line 2 is not a sample; a line has 64 pixels (0 to 16) and a digit (0 to 9), "
                  "separated by commas");
  }
}

/// Lines begin and end anywhere in the blocks in which a file is read.
TEST(DigitsSource, ReadsALongFile) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += line_of(i % 17, i % 10) + "\n";
  const auto source = open_digits({folder.write("a", text)}, 0).train;
  ASSERT_EQ(source->num_samples(), 3000u);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    DigitRow row(65, static_cast<std::int64_t>(i % 17));
    row.back() = static_cast<std::int64_t>(i % 10);
    ASSERT_EQ(row_of(*source, i), row) << i;
  }
  const auto endless = folder.write("b", text + std::string(1'000'000, '1'));
  EXPECT_NE(thrown<ConfigError>([&] { open_digits({endless}, 0); }).problem.find("line 3001 is no"),
            std::string::npos);
}

TEST(DigitsSource, ReadsTheRealSet) {
  const auto file = testing::digits_file();
  if (!file) GTEST_SKIP() << testing::kNoDigits;
  const auto source = open_digits({*file}, 0).train;
  EXPECT_EQ(source->num_samples(), 1797u);
  DigitRow count(10, 0);
  for (std::uint64_t i = 0; i < source->num_samples(); ++i)
    ++count[static_cast<std::size_t>(row_of(*source, i).back())];
  EXPECT_EQ(count, (DigitRow{178, 182, 177, 183, 181, 182, 181, 179, 174, 180}));
}

}  // namespace
}  // namespace spillway
