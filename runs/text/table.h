#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace spillway {

/// Text in columns: the first aligned left, the others right, each as wide as its widest cell.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  /// As many cells as the header has.
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print(std::ostream& out) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace spillway
