#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "spillway/data_source.h"
#include "spillway/error.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/input_file.h"

namespace {

using namespace spillway;

void read_all(const DataSource& source) {
  std::array<std::int64_t, 65> row{};
  testing::require(source.sample_elements() == std::ssize(row),
                   "a digit has 64 pixels and a label");
  for (std::uint64_t sample = 0; sample < source.num_samples(); ++sample) {
    source.read(sample, std::as_writable_bytes(std::span(row)));
    testing::require(std::ranges::all_of(row, [](auto v) { return v >= 0 && v <= 16; }),
                     "a pixel is from 0 to 16");
    testing::require(row.back() <= 9, "a label is a digit");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const testing::InputFile file(data, size);
  try {
    const auto split = open_digits({file.path()}, 0.25);
    read_all(*split.train);
    if (split.eval) read_all(*split.eval);
  } catch (const ConfigError&) {
  }
  return 0;
}
