#include "core/base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace spillway {
namespace {

/// In lower case, with '_' for '-'.
std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return result;
}

/// Of folded texts. Row i of the table holds the distances of prefixes of `b` from the first i
/// characters of `a`; only the last three rows are kept.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> two_above(b.size() + 1), above(two_above), row(two_above);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    two_above.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], two_above[j - 2] + 1);
    }
  }
  return row.back();
}

std::string_view last_key(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  return distance(folded(a), folded(b));
}

std::string nearest(std::string_view path, std::span<const std::string> known) {
  const std::string wanted = folded(path);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(last_key(wanted).size() / 2, 1) + 1;
  const auto is_nearer = [&](std::string_view a, std::string_view b, std::size_t extra) {
    const std::size_t lengths = std::max(a.size(), b.size()) - std::min(a.size(), b.size());
    if (lengths + extra >= best_distance) return false;  // without the table
    const std::size_t found = distance(a, b) + extra;
    if (found >= best_distance) return false;
    best_distance = found;
    return true;
  };
  for (const std::string& name : known) {
    const std::string there = folded(name);
    const bool whole = is_nearer(wanted, there, 0);
    // A wrong section costs two edits: the right one wins, and other words are not taken for it.
    if (is_nearer(last_key(wanted), last_key(there), 2) || whole) best = name;
  }
  return best;
}

}  // namespace spillway
