#pragma once

#include <span>
#include <string>
#include <string_view>

namespace spillway {

/// The number of edits (insert, delete, replace, swap of neighbours) between two names, ignoring
/// case; '-' equals '_'. Source: optimal string alignment distance.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known dotted path that is closest to `path`: the first of equals, empty if none is close.
/// The right key in a wrong section is close.
std::string nearest(std::string_view path, std::span<const std::string> known);

}  // namespace spillway
