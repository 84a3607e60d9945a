#pragma once

#include <limits>

namespace spillway {

/// A number as JSON stores it: null stands for a number that is not finite, and gives NaN.
template <typename Json>
double number_of(const Json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.template get<double>();
}

}  // namespace spillway
