#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/config_check.h"
#include "models/data/data_files.h"
#include "spillway/data_source.h"

namespace spillway {
namespace {

constexpr std::size_t kPixels = 64, kRow = kPixels + 1;
constexpr unsigned kMaxPixel = 16, kMaxDigit = 9;
constexpr Bytes kBlockBytes = 64_KiB;

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

/// Appends the values of a line; false if the line is not a sample.
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

void add_line(std::string_view line, const std::string& path, std::int64_t number,
              std::vector<std::uint8_t>& values) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (parse_digit(line, values)) return;
  throw ConfigError(
      "data.path", 0,
      fmt::format("'{}' line {} is not a sample; a line has 64 pixels (0 to 16) and a "
                  "digit (0 to 9), separated by commas",
                  path, number));
}

void read_digits(const DataFiles& files, std::size_t file, std::vector<std::uint8_t>& values) {
  std::string text;  // read, but not parsed
  std::int64_t number = 0;
  for (Bytes at = 0; at < files.size(file);) {
    const std::size_t kept = text.size();
    text.resize(kept + std::min(kBlockBytes, files.size(file) - at));
    const std::span added = std::as_writable_bytes(std::span(text)).subspan(kept);
    files.read(file, at, added);
    at += added.size();
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
      add_line({text.data() + begin, end - begin}, files.path(file), ++number, values);
    }
    text.erase(0, begin);
    if (text.size() > kBlockBytes) break;  // longer than any valid line
  }
  if (!text.empty()) add_line(text, files.path(file), ++number, values);
}

}  // namespace

DataSplit open_digits(const std::vector<std::string>& paths, double eval_fraction) {
  std::vector<std::uint8_t> values;
  ConfigCheck check;
  const DataFiles files(paths);
  for (std::size_t f = 0; f < files.num_files(); ++f) {
    check.run([&] { read_digits(files, f, values); });
  }
  check.finish();
  return split(std::make_shared<DigitsSource>(std::move(values)), eval_fraction);
}

}  // namespace spillway
