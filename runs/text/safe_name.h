#pragma once

#include <string>
#include <string_view>

namespace spillway {

/// `text` as the name of a file, in UTF-8: a character that is neither a letter, a digit nor one of
/// ._=,+- becomes '_'; beyond ASCII, all that show something stay. The name is not empty, not
/// hidden, and has at most 150 bytes.
std::string safe_name(std::string_view text);

}  // namespace spillway
