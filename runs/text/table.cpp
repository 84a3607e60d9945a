#include "runs/text/table.h"

#include <algorithm>
#include <ostream>

#include "runs/text/format.h"
#include "runs/text/terminal_text.h"

namespace spillway {

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], columns_of(row[c]));
  }
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      out << "  " << (c == 0 ? padded(row[c], widths[c]) : padded_left(row[c], widths[c]));
    }
    out << '\n';
  }
}

}  // namespace spillway
