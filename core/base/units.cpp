#include "spillway/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace spillway {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

std::optional<double> unit_factor(std::string_view unit) {
  if (unit.empty() || unit == "B") return 1.0;
  const auto power = std::string_view("KMGT").find(static_cast<char>(unit[0] & ~0x20));
  if (power == std::string_view::npos) return std::nullopt;
  const auto rest = unit.substr(1);
  if (rest.empty() || rest == "iB") return std::pow(1024.0, static_cast<double>(power + 1));
  if (rest == "B") return std::pow(1000.0, static_cast<double>(power + 1));
  return std::nullopt;
}

}  // namespace

std::optional<Bytes> parse_bytes(std::string_view text) {
  text = trim(text);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !(number >= 0)) return std::nullopt;
  const auto unit = trim(text.substr(static_cast<std::size_t>(end - text.data())));
  const auto factor = unit_factor(unit);
  if (!factor || number * *factor >= 0x1p63) return std::nullopt;
  return static_cast<Bytes>(std::llround(number * *factor));
}

std::optional<Bytes> parse_rate(std::string_view text) {
  constexpr std::string_view kPerSecond = "/s";
  text = trim(text);
  if (!text.ends_with(kPerSecond)) return std::nullopt;
  return parse_bytes(text.substr(0, text.size() - kPerSecond.size()));
}

std::string format_bytes(Bytes n) {
  static constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  if (n < 1024) return fmt::format("{} B", n);
  double value = static_cast<double>(n);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), value < 100 ? "%.2f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::string format_rate(Bytes bytes_per_s) { return format_bytes(bytes_per_s) + "/s"; }

}  // namespace spillway
