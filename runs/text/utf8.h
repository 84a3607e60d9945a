#pragma once

#include <cstddef>
#include <string_view>

namespace spillway {

/// The first character of a text, which should be UTF-8.
struct Utf8Char {
  char32_t code = 0;
  std::size_t num_bytes = 1;
  bool is_valid = false;  ///< if false, `num_bytes` is 1 and `code` is undefined
};

/// Overlong forms, surrogates and code points above U+10FFFF are invalid. `text` is not empty.
Utf8Char first_char(std::string_view text);

/// C0, DEL, C1, and bidirectional controls: a terminal executes them instead of showing them.
bool is_control(char32_t code);

/// Beyond ASCII: spaces, invisible and private-use characters.
bool is_blank(char32_t code);

/// Columns of a terminal: 0 for combining characters, 2 for wide ones such as Chinese and emoji.
/// Source: Unicode Standard Annex 11, by blocks.
std::size_t columns_of(char32_t code);

}  // namespace spillway
