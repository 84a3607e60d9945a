#include "apps/table.h"

#include <algorithm>
#include <ostream>

namespace spillway {

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string gap(widths[c] - row[c].size(), ' ');
      const bool last = c + 1 == row.size();
      out << "  " << (c == 0 ? row[c] + (last ? "" : gap) : gap + row[c]);
    }
    out << '\n';
  }
}

}  // namespace spillway
