#include "core/nearest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace spillway {
namespace {

char folded(char c) {
  return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

std::string_view last_key(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Rows i-2, i-1 and i of the table of distances between prefixes.
  std::vector<std::size_t> two_above(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_above.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const char x = folded(a[i - 1]), y = folded(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (x == y ? 0u : 1u)});
      if (i > 1 && j > 1 && x == folded(b[j - 2]) && folded(a[i - 2]) == y)
        row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view path, std::span<const std::string> known) {
  const auto key = last_key(path);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(key.size() / 2, 1) + 1;
  for (const auto& candidate : known) {
    const auto whole = edit_distance(path, candidate);
    // A wrong section costs a little, so that the right one wins among equals.
    const auto elsewhere = edit_distance(key, last_key(candidate)) + 1;
    const auto distance = std::min(whole, elsewhere);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace spillway
