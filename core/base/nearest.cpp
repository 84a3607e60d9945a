#include "core/base/nearest.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// Case does not count, and '-' is '_'.
void fold(std::string_view text, std::string& into) {
  into.assign(text);
  for (char& c : into) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
}

std::string folded(std::string_view text) {
  std::string result;
  fold(text, result);
  return result;
}

/// A folded text that is compared with many.
class Searched {
 public:
  explicit Searched(std::string text) : text_(std::move(text)) {
    for (const char c : text_) ++letters_[static_cast<unsigned char>(c)];
  }

  /// Edits between it and another folded text where these are fewer than `limit`, else some number
  /// that is not. Source of the early end: Ukkonen, "Algorithms for approximate string matching",
  /// 1985.
  std::size_t distance(std::string_view other, std::size_t limit) {
    const std::size_t least = least_distance(other);
    if (least >= limit) return least;
    for (auto* row : {&two_above_, &above_, &row_}) row->resize(other.size() + 1);
    std::iota(row_.begin(), row_.end(), std::size_t{0});
    std::size_t least_above = 0, least_here = 0;
    for (std::size_t i = 1; i <= text_.size(); ++i) {
      two_above_.swap(above_);
      above_.swap(row_);
      fill_row(i, other);
      least_above = std::exchange(least_here, *std::ranges::min_element(row_));
      // A row is at least the least of the two above it.
      if (std::min(least_above, least_here) >= limit) return limit;
    }
    return row_.back();
  }

 private:
  /// No edit distance is less, as each letter that the other text lacks takes an edit.
  std::size_t least_distance(std::string_view other) {
    std::size_t common = 0;
    for (const char c : other) common += letters_[static_cast<unsigned char>(c)]-- > 0 ? 1u : 0u;
    for (const char c : other) ++letters_[static_cast<unsigned char>(c)];
    return std::max(text_.size(), other.size()) - common;
  }

  void fill_row(std::size_t i, std::string_view other) {
    row_[0] = i;
    const char x = text_[i - 1];
    for (std::size_t j = 1; j <= other.size(); ++j) {
      const char y = other[j - 1];
      row_[j] = std::min(std::min(above_[j], row_[j - 1]) + 1, above_[j - 1] + (x == y ? 0u : 1u));
      if (i > 1 && j > 1 && x == other[j - 2] && text_[i - 2] == y)
        row_[j] = std::min(row_[j], two_above_[j - 2] + 1);
    }
  }

  std::string text_;
  std::array<std::ptrdiff_t, 256> letters_{};  // how often each stands in the text
  // Rows i-2, i-1 and i of the table of distances between prefixes.
  std::vector<std::size_t> two_above_, above_, row_;
};

std::string_view last_key(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  return Searched(folded(a)).distance(folded(b), std::numeric_limits<std::size_t>::max());
}

std::string nearest(std::string_view path, std::span<const std::string> known) {
  const std::string wanted = folded(path), key(last_key(wanted));
  Searched searched_path(wanted), searched_key(key);
  std::string best, there;
  std::size_t best_distance = std::max<std::size_t>(key.size() / 2, 1) + 1;
  for (const auto& candidate : known) {
    fold(candidate, there);
    const auto whole = searched_path.distance(there, best_distance);
    // A wrong section costs a little, so that the right one wins among equals.
    const auto elsewhere = searched_key.distance(last_key(there), best_distance) + 1;
    if (std::min(whole, elsewhere) < best_distance) {
      best = candidate;
      best_distance = std::min(whole, elsewhere);
    }
  }
  return best;
}

}  // namespace spillway
