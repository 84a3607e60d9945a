#include "models/graphs/json_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "spillway/error.h"

namespace spillway {
namespace {

using Json = JsonFields::Json;

/// At most so much of a value, which may be of any length.
constexpr std::size_t kShown = 60;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

}  // namespace

bool is_int64(const Json& value) {
  const bool is_too_large = value.is_number_unsigned() &&
                            value.get<std::uint64_t>() > static_cast<std::uint64_t>(IntRange{}.max);
  return value.is_number_integer() && !is_too_large;
}

JsonFields::JsonFields(const Json& object, std::string place)
    : object_(&object), place_(std::move(place)) {
  if (!object.is_object()) fail(fmt::format("is {}, must be an object", shown(object)));
}

void JsonFields::fail(const std::string& problem) const {
  throw Error(place_.empty() ? problem : place_ + ": " + problem);
}

void JsonFields::fail(std::string_view key, const Json& value, const std::string& expected) const {
  fail(fmt::format("{} is {}, must be {}", key, shown(value), expected));
}

bool JsonFields::has(std::string_view key) {
  read_.emplace(key);
  const auto found = object_->find(key);
  return found != object_->end() && !found->is_null();
}

const Json& JsonFields::at(std::string_view key) {
  read_.emplace(key);
  const auto found = object_->find(key);
  if (found == object_->end()) fail(fmt::format("lacks {}", key));
  return *found;
}

std::string JsonFields::text(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_string()) fail(key, value, "a string");
  return value.get<std::string>();
}

bool JsonFields::flag(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_boolean()) fail(key, value, "true or false");
  return value.get<bool>();
}

std::int64_t JsonFields::integer_of(std::string_view key, const Json& value,
                                    const IntRange& range) const {
  if (!is_int64(value) || !contains(range, value.get<std::int64_t>()))
    fail(key, value, describe(range));
  return value.get<std::int64_t>();
}

std::int64_t JsonFields::integer(std::string_view key, const IntRange& range) {
  return integer_of(key, at(key), range);
}

double JsonFields::number(std::string_view key, const NumberRange& range) {
  const Json& value = at(key);
  if (!value.is_number() || !std::isfinite(value.get<double>()) ||
      !contains(range, value.get<double>()))
    fail(key, value, describe(range));
  return value.get<double>();
}

const std::vector<Json>& JsonFields::list(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_array()) fail(key, value, "a list");
  return value.get_ref<const Json::array_t&>();
}

std::vector<std::int64_t> JsonFields::integers(std::string_view key, const IntRange& range) {
  std::vector<std::int64_t> integers;
  for (const Json& value : list(key)) integers.push_back(integer_of(key, value, range));
  return integers;
}

std::vector<std::string> JsonFields::texts(std::string_view key) {
  std::vector<std::string> texts;
  for (const Json& value : list(key)) {
    if (!value.is_string()) fail(key, value, "a string");
    texts.push_back(value.get<std::string>());
  }
  return texts;
}

std::size_t JsonFields::choice(std::string_view key, const std::vector<std::string>& names) {
  const auto found = std::ranges::find(names, text(key));
  if (found == names.end()) fail(key, at(key), fmt::format("one of {}", fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

void JsonFields::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (!read_.contains(key)) fail(fmt::format("has the unknown key {}", shown(key)));
  }
}

}  // namespace spillway
