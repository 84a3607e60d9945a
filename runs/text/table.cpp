#include "runs/text/table.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "runs/text/format.h"
#include "runs/text/terminal_text.h"

namespace spillway {
namespace {

constexpr std::size_t kGap = 2;           // before each column
constexpr std::size_t kShortTitle = 5;    // titles are not cut below
constexpr std::size_t kNarrowFirst = 24;  // nor is the first column, before others are left out

int width_slot() {
  static const int slot = std::ios_base::xalloc();
  return slot;
}

/// A column of a table that is being narrowed.
struct Fitted {
  std::size_t index = 0;  ///< in the table
  int rank = 0;
  std::size_t title = 0, cells = 0;  ///< their widths

  std::size_t width() const { return std::max(title, cells); }
};

std::size_t total_width(const std::vector<Fitted>& columns) {
  return std::accumulate(columns.begin(), columns.end(), std::size_t{0},
                         [](std::size_t sum, const Fitted& c) { return sum + kGap + c.width(); });
}

/// Cuts the titles that stick out most, a character at a time; not those of columns that stay.
void cut_titles(std::vector<Fitted>& columns, std::size_t width) {
  const auto excess = [](const Fitted& c) {
    const std::size_t least = std::max(c.cells, kShortTitle);
    return c.rank > 0 && c.title > least ? c.title - least : 0;
  };
  while (total_width(columns) > width) {
    const auto longest = std::ranges::max_element(columns, {}, excess);
    if (excess(*longest) == 0) return;
    --longest->title;
  }
}

void cut_first(std::vector<Fitted>& columns, std::size_t width) {
  Fitted& first = columns.front();
  const std::size_t total = total_width(columns);
  if (total <= width || first.width() <= kNarrowFirst) return;
  const std::size_t most =
      std::max(kNarrowFirst, first.width() - std::min(first.width(), total - width));
  first.title = std::min(first.title, most);
  first.cells = std::min(first.cells, most);
}

void leave_out(std::vector<Fitted>& columns, std::size_t width) {
  while (total_width(columns) > width) {
    const auto last = std::ranges::max_element(columns, {}, &Fitted::rank);
    if (last->rank == 0) return;
    columns.erase(last);
  }
}

std::string cut(const std::string& text, std::size_t width) {
  if (columns_of(text) <= width) return text;
  return width == 0 ? "" : cut_to_columns(text, width - 1) + "~";
}

}  // namespace

void set_table_width(std::ostream& out, std::size_t columns) {
  out.iword(width_slot()) = columns == kAnyWidth ? 0 : static_cast<long>(columns);
}

std::size_t table_width(std::ostream& out) {
  const long width = out.iword(width_slot());
  return width == 0 ? kAnyWidth : static_cast<std::size_t>(width);
}

Table::Table(std::vector<std::string> titles) {
  for (std::string& title : titles)
    columns_.push_back({std::move(title), static_cast<int>(columns_.size())});
}

std::vector<std::string> Table::lines(std::size_t width) const {
  std::vector<Fitted> columns;
  std::vector<std::string> titles;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    titles.push_back(columns_[c].title);
    columns.push_back({.index = c, .rank = columns_[c].rank, .title = columns_of(titles[c])});
    for (const auto& row : rows_)
      columns.back().cells = std::max(columns.back().cells, columns_of(row[c]));
  }
  cut_titles(columns, width);
  cut_first(columns, width);
  leave_out(columns, width);
  const auto line_of = [&](const std::vector<std::string>& row) {
    std::string line;
    for (const Fitted& column : columns) {
      const std::string cell = cut(row[column.index], column.width());
      line += std::string(kGap, ' ');
      line += column.index == 0 ? padded(cell, column.width()) : padded_left(cell, column.width());
    }
    return cut(line, width);
  };
  std::vector<std::string> lines{line_of(titles)};
  for (const auto& row : rows_) lines.push_back(line_of(row));
  return lines;
}

void Table::print(std::ostream& out) const {
  for (const std::string& line : lines(table_width(out))) out << line << '\n';
}

}  // namespace spillway
