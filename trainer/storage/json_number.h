#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

/// A number as JSON stores it: null stands for a number that is not finite, and gives NaN.
template <typename Json>
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.template get<double>();
}

/// A number without a fraction. Throws Json::type_error for any other value: nlohmann::json would
/// cast it, and such a cast of 1e300 is undefined.
template <typename Json>
std::int64_t integer_of(const Json& value) {
  if (value.is_number_integer()) return value.template get<std::int64_t>();
  throw Json::type_error::create(302, "an integer is expected", &value);
}

/// A list of pairs of a step and such a number.
template <typename Json>
std::vector<std::pair<std::int64_t, double>> pairs_of(const Json& list) {
  std::vector<std::pair<std::int64_t, double>> pairs;
  for (const Json& pair : list) pairs.emplace_back(integer_of(pair.at(0)), number_of(pair.at(1)));
  return pairs;
}

/// An object of such numbers by name.
template <typename Json>
std::map<std::string, double> metrics_of(const Json& object) {
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : object.items()) metrics[name] = number_of(value);
  return metrics;
}

}  // namespace spillway
