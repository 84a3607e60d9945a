#pragma once

#include <string>
#include <string_view>

namespace spillway {

/// Turns `text` into a UTF-8 file name: letters, digits, ._=,+- and visible characters beyond ASCII
/// stay, all others become '_'. The name is not empty, not hidden, and has at most 150 bytes.
std::string safe_name(std::string_view text);

}  // namespace spillway
