#pragma once

#include <cstddef>
#include <iosfwd>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

inline constexpr std::size_t kAnyWidth = std::numeric_limits<std::size_t>::max();

/// The width to which tables on a stream are fitted; kAnyWidth unless set. Program output to a
/// terminal has that of the terminal.
void set_table_width(std::ostream& out, std::size_t columns);
std::size_t table_width(std::ostream& out);

/// Text in columns: the first aligned left, the others right, each as wide as its widest cell.
/// A table that is too wide is narrowed in this order: titles of columns that may be left out are
/// cut to the width of their cells, the first column is cut, columns are left out, lines are cut. A
/// cut text ends with "~".
class Table {
 public:
  struct Column {
    std::string title;
    int rank = 0;  ///< the largest is left out first; 0: never
  };
  /// The last columns are left out first, the first never.
  explicit Table(std::vector<std::string> titles);
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// As many cells as there are columns.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// The title line and the rows, each at most `width` columns wide.
  std::vector<std::string> lines(std::size_t width) const;
  /// Fits the width of the stream.
  void print(std::ostream& out) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace spillway
