#include <algorithm>
#include <span>
#include <vector>

#include "spillway/data_source.h"
#include "spillway/error.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/input_file.h"

namespace {

using namespace spillway;

constexpr std::int64_t kVocab = 300;

DataSplit open(unsigned format, const std::string& path, std::int64_t length, double fraction) {
  if (format == 0) return open_bytes({path}, length, fraction);
  return open_tokens({path, path}, format == 1 ? TokenType::uint16 : TokenType::uint32, kVocab,
                     length, fraction);
}

void read_all(const DataSource& source) {
  std::vector<std::int64_t> row(static_cast<std::size_t>(source.sample_elements()));
  for (std::uint64_t sample = 0; sample < source.num_samples(); ++sample) {
    source.read(sample, std::as_writable_bytes(std::span(row)));
    testing::require(
        std::ranges::all_of(row, [](auto token) { return token >= 0 && token < kVocab; }),
        "every token is in the vocabulary");
  }
}

}  // namespace

/// The first byte selects how the others are read.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const testing::InputFile file(data + 1, size - 1);
  const unsigned format = data[0] % 3, length = 1 + data[0] / 3 % 16, eighths = data[0] / 48 % 8;
  try {
    const auto split = open(format, file.path(), length, eighths / 8.0);
    read_all(*split.train);
    if (split.eval) read_all(*split.eval);
  } catch (const ConfigError&) {
  }
  return 0;
}
