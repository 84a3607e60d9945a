#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

/// Medians with their spread, and numbers as text for Markdown tables.
namespace spillway::experiments {

struct Spread {
  double median = 0, least = 0, most = 0;
};

/// Of at least one value.
inline Spread spread_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

inline std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// "1.012 (1.004-1.031)".
inline std::string text_of(const Spread& spread, int digits) {
  const std::string median = fixed(spread.median, digits), least = fixed(spread.least, digits),
                    most = fixed(spread.most, digits);
  return least == most ? median : median + " (" + least + "-" + most + ")";
}

/// "1,234,567".
inline std::string with_commas(double value) {
  std::string digits = fixed(value, 0);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), 1, ',');
  }
  return digits;
}

/// Prints a row of a Markdown table.
inline void print_row(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) std::printf("| %s ", cell.c_str());
  std::printf("|\n");
}

/// Prints the header of a table: the first column is text, the others are numbers.
inline void print_head(const std::vector<std::string>& cells) {
  print_row(cells);
  std::vector<std::string> rule(cells.size(), "---:");
  rule.front() = "---";
  print_row(rule);
}

}  // namespace spillway::experiments
