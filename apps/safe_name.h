#pragma once

#include <string>
#include <string_view>

namespace spillway {

/// `text` as the name of a file: what is not a letter, a digit or one of ._=,+- becomes '_', and
/// it is neither empty, nor hidden, nor longer than 150 bytes.
std::string safe_name(std::string_view text);

}  // namespace spillway
