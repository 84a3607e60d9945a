#pragma once

#include <span>
#include <string>
#include <string_view>

namespace spillway {

/// Edits (insert, delete, replace, swap of neighbours) between two names; case does not count,
/// and '-' is '_'. Source: optimal string alignment distance.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The known path most like `path`; the first of equals, empty if all are far off. Paths are
/// dotted; a key that only stands in the wrong section is near.
std::string nearest(std::string_view path, std::span<const std::string> known);

}  // namespace spillway
