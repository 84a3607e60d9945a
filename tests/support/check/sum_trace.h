#pragma once

#include <string>
#include <vector>

#include "core/base/fold.h"

namespace spillway::testing {

/// A "sum" that shows its association: + is neither associative nor commutative.
struct Trace {
  std::string text;
  friend Trace operator+(const Trace& a, const Trace& b) {
    return {"(" + a.text + "+" + b.text + ")"};
  }
  bool operator==(const Trace&) const = default;
};

/// "a", "b", ...
inline std::vector<Trace> leaves(int n) {
  std::vector<Trace> all;
  for (int i = 0; i < n; ++i) all.push_back({std::string(1, static_cast<char>('a' + i))});
  return all;
}

inline std::string folded(int n, int groups) {
  const auto all = leaves(n);
  return fold(std::span<const Trace>(all), groups).text;
}

template <typename T>
T left_fold(const std::vector<T>& values) {
  T sum = values.front();
  for (std::size_t i = 1; i < values.size(); ++i) sum = sum + values[i];
  return sum;
}

}  // namespace spillway::testing
