#pragma once

#include <optional>
#include <string>
#include <vector>

namespace spillway {

/// One line of a table as CSV. Source: RFC 4180. A cell that a spreadsheet would compute, as it
/// begins with one of = + - @, a tab or a carriage return and is no number, gets an apostrophe in
/// front.
std::string csv_line(const std::vector<std::string>& cells);

/// A number as a cell, empty where there is none.
std::string csv_cell(const std::optional<double>& value);

}  // namespace spillway
