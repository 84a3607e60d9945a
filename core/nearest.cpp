#include "core/nearest.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <vector>

namespace spillway {
namespace {

/// Case does not count, and '-' is '_'.
std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// No edit distance is less, as each letter that the other text lacks takes an edit.
std::size_t least_distance(const std::string& a, const std::string& b) {
  std::array<std::ptrdiff_t, 256> left{};
  for (const char c : a) ++left[static_cast<unsigned char>(c)];
  std::size_t common = 0;
  for (const char c : b) common += left[static_cast<unsigned char>(c)]-- > 0 ? 1u : 0u;
  return std::max(a.size(), b.size()) - common;
}

/// Of folded texts.
std::size_t distance(const std::string& a, const std::string& b) {
  // Rows i-2, i-1 and i of the table of distances between prefixes.
  std::vector<std::size_t> two_above(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_above.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const char x = a[i - 1], y = b[j - 1];
      row[j] = std::min(std::min(above[j], row[j - 1]) + 1, above[j - 1] + (x == y ? 0u : 1u));
      if (i > 1 && j > 1 && x == b[j - 2] && a[i - 2] == y)
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return row[b.size()];
}

/// The distance where it is below `limit`, else something that is not.
std::size_t distance_below(std::size_t limit, const std::string& a, const std::string& b) {
  const std::size_t least = least_distance(a, b);
  return least < limit ? distance(a, b) : least;
}

std::string last_key(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  return distance(folded(a), folded(b));
}

std::string nearest(std::string_view path, std::span<const std::string> known) {
  const std::string wanted = folded(path), key = last_key(wanted);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(key.size() / 2, 1) + 1;
  for (const auto& candidate : known) {
    const std::string there = folded(candidate);
    const auto whole = distance_below(best_distance, wanted, there);
    // A wrong section costs a little, so that the right one wins among equals.
    const auto elsewhere = distance_below(best_distance, key, last_key(there)) + 1;
    if (std::min(whole, elsewhere) < best_distance) {
      best = candidate;
      best_distance = std::min(whole, elsewhere);
    }
  }
  return best;
}

}  // namespace spillway
