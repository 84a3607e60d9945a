#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/field.h"

namespace spillway {

/// Whether a value is a whole number of 64 bits with a sign.
bool is_int64(const nlohmann::json& value);

/// Reads the keys of a JSON object strictly: each has a type and a range, and no other key may be
/// there. Throws Error with the place of the problem.
class JsonFields {
 public:
  using Json = nlohmann::json;

  /// `place`: "layer 'h.0'". The object must outlive the reader.
  JsonFields(const Json& object, std::string place);

  /// Whether the key is there with a value that is not null.
  bool has(std::string_view key);
  /// A key that must be there.
  const Json& at(std::string_view key);
  std::string text(std::string_view key);
  bool flag(std::string_view key);
  std::int64_t integer(std::string_view key, const IntRange& range);
  /// Finite.
  double number(std::string_view key, const NumberRange& range);
  const std::vector<Json>& list(std::string_view key);
  std::vector<std::int64_t> integers(std::string_view key, const IntRange& range);
  std::vector<std::string> texts(std::string_view key);
  /// The position of the text among `names`.
  std::size_t choice(std::string_view key, const std::vector<std::string>& names);
  /// After the last key: throws if there are others.
  void finish() const;

  const std::string& place() const { return place_; }
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  [[noreturn]] void fail(std::string_view key, const Json& value,
                         const std::string& expected) const;
  std::int64_t integer_of(std::string_view key, const Json& value, const IntRange& range) const;

  const Json* object_;
  std::string place_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace spillway
