#include "runs/text/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "runs/text/terminal_text.h"

namespace spillway {
namespace {

/// In single quotes, unless a shell takes it as it is.
std::string shell_word(const std::string& word) {
  const bool is_plain = std::ranges::all_of(word, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._=/-").find(c) != std::string_view::npos;
  });
  if (is_plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string format_number(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

std::string format_fixed(double value, int decimals) {
  // The largest double has 309 digits before the point.
  std::array<char, 352> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value,
                                 std::chars_format::fixed, decimals)
                       .ptr;
  return {text.data(), end};
}

std::string format_percent(double share) { return format_fixed(100 * share, 0) + " %"; }

std::string format_count(double value) {
  static constexpr std::array<const char*, 5> kUnits{"", "k", "M", "G", "T"};
  std::size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return format_fixed(value, decimals) + kUnits[unit];
}

std::string format_rounded(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return text;
  std::array<char, 32> rounded{};
  const auto written = std::to_chars(rounded.data(), rounded.data() + rounded.size(), value,
                                     std::chars_format::general, 4);
  const auto size = static_cast<std::size_t>(written.ptr - rounded.data());
  return size < text.size() ? std::string(rounded.data(), size) : text;
}

std::string format_duration(double seconds) {
  if (seconds < 59.5) return format_fixed(seconds, 0) + " s";
  const auto pair = [](double whole) {  // in the smaller of two units of which 60 make the larger
    const auto n = static_cast<std::int64_t>(std::llround(whole));
    return fmt::format("{}:{:02}", n / 60, n % 60);
  };
  if (seconds < 3599.5) return pair(seconds) + " min";
  if (seconds < 2 * 86400) return pair(seconds / 60) + " h";
  return format_fixed(seconds / 86400, 1) + " days";
}

std::string format_seconds(double seconds) {
  constexpr double kMinute = 60;
  return seconds < kMinute ? fmt::format("{:.3g} s", seconds) : format_duration(seconds);
}

std::string in_shell(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

std::string padded(const std::string& text, std::size_t width) {
  const std::size_t columns = columns_of(text);
  return text + std::string(width > columns ? width - columns : 0, ' ');
}

std::string padded_left(const std::string& text, std::size_t width) {
  const std::size_t columns = columns_of(text);
  return std::string(width > columns ? width - columns : 0, ' ') + text;
}

}  // namespace spillway
