#include "runs/config/field_text.h"

#include <fmt/ranges.h>

#include <charconv>
#include <limits>
#include <optional>

#include "runs/text/format.h"

namespace spillway {
namespace {

template <typename Number>
std::optional<Number> number_of(const std::string& text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

template <typename Value, typename Range>
bool take(const std::optional<Value>& parsed, Value& value, const Range& range) {
  if (!parsed || !contains(range, *parsed)) return false;
  value = *parsed;
  return true;
}

}  // namespace

bool is_integer(const std::string& text) {
  const std::size_t digits = text.starts_with('-') ? 1 : 0;
  return text.size() > digits && text.find_first_not_of("0123456789", digits) == std::string::npos;
}

bool parse(const std::string& text, std::int64_t& value, const IntRange& range) {
  if (range.word != nullptr && text == range.word) {
    value = range.meaning;
    return true;
  }
  return take(number_of<std::int64_t>(text), value, IntRange{range.min, range.max});
}
bool parse(const std::string& text, int& value, const IntRange& range) {
  std::int64_t wide = 0;
  if (!parse(text, wide, range) || wide < std::numeric_limits<int>::min() ||
      wide > std::numeric_limits<int>::max())
    return false;
  value = static_cast<int>(wide);
  return true;
}
bool parse(const std::string& text, std::uint64_t& value, AnyValue) {
  const auto parsed = number_of<std::uint64_t>(text);
  value = parsed.value_or(value);
  return parsed.has_value();
}
bool parse(const std::string& text, double& value, const NumberRange& range) {
  return take(number_of<double>(text), value, range);
}
bool parse(const std::string& text, bool& value, AnyValue) {
  if (text != "true" && text != "false") return false;
  value = text == "true";
  return true;
}
bool parse(const std::string& text, std::string& value, AnyValue) {
  value = text;
  return true;
}
bool parse(const std::string& text, Bytes& value, const SizeRange& range) {
  return take(parse_bytes(text), value, range);
}
bool parse(const std::string& text, Bytes& value, const RateRange& range) {
  return take(text == "0" ? std::optional<Bytes>(0) : parse_rate(text), value, range);
}

std::string to_text(std::int64_t value, const IntRange& range) {
  return range.word != nullptr && value == range.meaning ? range.word : fmt::to_string(value);
}
std::string to_text(std::uint64_t value, AnyValue) { return fmt::to_string(value); }
std::string to_text(double value, const NumberRange&) { return format_number(value); }
std::string to_text(bool value, AnyValue) { return value ? "true" : "false"; }
std::string to_text(const std::string& value, AnyValue) { return value; }
std::string to_text(Bytes value, const SizeRange&) {
  if (value % 1_GiB == 0) return fmt::format("{}GiB", value / 1_GiB);
  if (value % 1_MiB == 0) return fmt::format("{}MiB", value / 1_MiB);
  if (value % 1_KiB == 0) return fmt::format("{}KiB", value / 1_KiB);
  return fmt::to_string(value);
}
std::string to_text(Bytes value, const RateRange&) {
  constexpr Bytes kMB = 1'000'000, kGB = 1'000 * kMB;  // networks are rated in these
  if (value == 0) return "0";
  if (value % 1_MiB != 0) {
    if (value % kGB == 0) return fmt::format("{}GB/s", value / kGB);
    if (value % kMB == 0) return fmt::format("{}MB/s", value / kMB);
  }
  return to_text(value, SizeRange{}) + "/s";
}

std::string describe(std::uint64_t, AnyValue) {
  return fmt::format("an integer from 0 to {}", std::numeric_limits<std::uint64_t>::max());
}
std::string describe(bool, AnyValue) { return "true or false"; }
std::string describe(const std::string&, AnyValue) { return "a string"; }
std::string describe_choice(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

}  // namespace spillway
