#pragma once

#include <optional>
#include <string>
#include <vector>

namespace spillway {

/// One line of CSV. Source: RFC 4180. Puts an apostrophe before a cell that a spreadsheet would
/// execute: one that starts with = + - @, a tab or a carriage return and is not a number.
std::string csv_line(const std::vector<std::string>& cells);

/// A cell with a number; empty if there is none.
std::string csv_cell(const std::optional<double>& value);

}  // namespace spillway
