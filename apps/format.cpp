#include "apps/format.h"

#include <array>
#include <charconv>
#include <cmath>

namespace spillway {

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

}  // namespace spillway
