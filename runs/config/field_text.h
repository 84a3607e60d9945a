#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/field.h"
#include "spillway/choices.h"

/// Values of fields as text, by type and range; see core/base/field.h.
namespace spillway {

/// Reads a value of a field. Returns false, without changing `value`, if `text` has another type or
/// is out of range.
bool parse(const std::string& text, std::int64_t& value, const IntRange& range);
bool parse(const std::string& text, int& value, const IntRange& range);
bool parse(const std::string& text, std::uint64_t& value, AnyValue);
bool parse(const std::string& text, double& value, const NumberRange& range);
bool parse(const std::string& text, bool& value, AnyValue);
bool parse(const std::string& text, std::string& value, AnyValue);
bool parse(const std::string& text, Bytes& value, const SizeRange& range);
bool parse(const std::string& text, Bytes& value, const RateRange& range);
template <Named Enum>
bool parse(const std::string& text, Enum& value, AnyValue) {
  const auto named = value_named<Enum>(text);
  if (named) value = *named;
  return named.has_value();
}

/// Text that parse() reads as `value`.
std::string to_text(std::int64_t value, const IntRange& range);
std::string to_text(std::uint64_t value, AnyValue);
std::string to_text(double value, const NumberRange& range);
std::string to_text(bool value, AnyValue);
std::string to_text(const std::string& value, AnyValue);
std::string to_text(Bytes value, const SizeRange& range);
std::string to_text(Bytes value, const RateRange& range);
std::string to_text(Named auto value, AnyValue) { return to_string(value); }

/// The values that parse() accepts: "an integer from 1 to 10", "cpu or cuda".
template <typename Value, typename Range>
std::string describe(const Value& /*type*/, const Range& range) {
  return describe(range);
}
std::string describe(std::uint64_t type, AnyValue);
std::string describe(bool type, AnyValue);
std::string describe(const std::string& type, AnyValue);
std::string describe_choice(const std::vector<std::string>& names);
std::string describe(Named auto type, AnyValue) {
  constexpr auto& names = kNames<decltype(type)>;
  return describe_choice({names.begin(), names.end()});
}

/// True if `text` is an integer of any size.
bool is_integer(const std::string& text);

}  // namespace spillway
