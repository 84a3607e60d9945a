#include "core/base/field.h"

#include <fmt/format.h>

#include <cmath>

namespace spillway {
namespace {

/// " of at least A", " above A", " below B": the bounds that are not those of the type.
std::string bounds(const NumberRange& range) {
  const NumberRange all;
  std::string text;
  if (range.min != all.min) {
    text = fmt::format(" {} {}", range.above_min ? "above" : "of at least", range.min);
  }
  if (range.max != all.max) {
    text += fmt::format("{} {} {}", text.empty() ? "" : " and",
                        range.below_max ? "below" : "at most", range.max);
  }
  return text;
}

}  // namespace

bool contains(const IntRange& range, std::int64_t value) {
  return (range.word != nullptr && value == range.meaning) ||
         (value >= range.min && value <= range.max);
}
bool contains(const NumberRange& range, double value) {
  return std::isfinite(value) && (range.above_min ? value > range.min : value >= range.min) &&
         (range.below_max ? value < range.max : value <= range.max);
}
bool contains(const SizeRange& range, Bytes value) {
  return value >= range.min && value <= range.max;
}
bool contains(const RateRange& range, Bytes value) {
  return value >= range.min || (range.may_be_unlimited && value == 0);
}

std::string describe(const IntRange& range) {
  const IntRange all;
  std::string text = "an integer";
  if (range.min != all.min && range.max != all.max) {
    text += fmt::format(" from {} to {}", range.min, range.max);
  } else if (range.min != all.min) {
    text += fmt::format(" of at least {}", range.min);
  }
  return range.word == nullptr ? text : fmt::format("{}, or {}", text, range.word);
}
std::string describe(const NumberRange& range) { return "a number" + bounds(range); }
std::string describe(const SizeRange& range) {
  const SizeRange all;
  const bool is_any = range.min == all.min && range.max == all.max;
  return fmt::format(
      "a size{}, such as 12MiB",
      is_any ? ""
             : fmt::format(" from {} to {}", format_bytes(range.min), format_bytes(range.max)));
}
std::string describe(const RateRange& range) {
  return fmt::format("a rate of at least {}, such as 2GB/s{}", format_rate(range.min),
                     range.may_be_unlimited ? ", or 0 for no limit" : "");
}

std::string FieldCheck::text(const IntRange&, std::int64_t value) { return fmt::to_string(value); }
std::string FieldCheck::text(const NumberRange&, double value) { return fmt::format("{}", value); }
std::string FieldCheck::text(const SizeRange&, Bytes value) { return format_bytes(value); }
std::string FieldCheck::text(const RateRange&, Bytes value) { return format_rate(value); }

}  // namespace spillway
