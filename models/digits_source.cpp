#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/config_check.h"
#include "models/data_source.h"
#include "models/mapped_file.h"

namespace spillway {
namespace {

constexpr std::size_t kPixels = 64, kRow = kPixels + 1;
constexpr unsigned kMaxPixel = 16, kMaxDigit = 9;

class DigitsSource final : public DataSource {
 public:
  explicit DigitsSource(std::vector<std::uint8_t> values) : values_(std::move(values)) {}

  std::uint64_t num_samples() const override { return values_.size() / kRow; }
  std::int64_t sample_elements() const override { return kRow; }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    std::ranges::copy(std::span(values_).subspan(index * kRow, kRow),
                      values_of<std::int64_t>(row).begin());
  }

 private:
  std::vector<std::uint8_t> values_;
};

/// Appends the values of a line; false where it is no digit.
bool parse_digit(std::string_view line, std::vector<std::uint8_t>& values) {
  const char *at = line.data(), *const end = at + line.size();
  for (std::size_t i = 0; i < kRow; ++i) {
    if (i > 0 && (at == end || *at++ != ',')) return false;
    unsigned value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc{} || value > (i < kPixels ? kMaxPixel : kMaxDigit)) return false;
    values.push_back(static_cast<std::uint8_t>(value));
    at = stop;
  }
  return at == end;
}

void read_digits(const MappedFile& file, std::vector<std::uint8_t>& values) {
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!parse_digit(line, values)) {
      throw ConfigError("data.path", 0,
                        "'" + file.path() + "' line " + std::to_string(number) +
                            " is no digit; write 64 pixels from 0 to 16 and a digit from 0 to 9, "
                            "whole numbers between commas");
    }
    text.remove_prefix(std::min(length + 1, text.size()));
  }
}

}  // namespace

DataSplit open_digits(const std::vector<std::string>& paths, double eval_fraction) {
  std::vector<std::uint8_t> values;
  ConfigCheck check;
  for (const MappedFile& file : map_files(paths)) check.run([&] { read_digits(file, values); });
  check.finish();
  return split(std::make_shared<DigitsSource>(std::move(values)), eval_fraction);
}

}  // namespace spillway
