#include "runs/text/csv.h"

#include <charconv>
#include <string_view>
#include <system_error>

#include "runs/text/format.h"

namespace spillway {
namespace {

/// Spreadsheets execute cells that start with one of these characters.
bool is_formula(const std::string& text) {
  if (text.empty() || std::string_view("=+-@\t\r").find(text.front()) == std::string_view::npos)
    return false;
  double number = 0;
  const char* begin = text.data() + (text.front() == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc::invalid_argument || stop != end;
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted_text = "\"";
  for (const char c : text) quoted_text += c == '"' ? "\"\"" : std::string(1, c);
  return quoted_text + "\"";
}

}  // namespace

std::string csv_line(const std::vector<std::string>& cells) {
  std::string text;
  for (const auto& cell : cells) {
    text += &cell == &cells.front() ? "" : ",";
    text += quoted(is_formula(cell) ? "'" + cell : cell);
  }
  return text + "\r\n";
}

std::string csv_cell(const std::optional<double>& value) {
  return value ? format_number(*value) : "";
}

}  // namespace spillway
