#include "apps/csv.h"

#include "apps/format.h"

namespace spillway {
namespace {

std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted_text = "\"";
  for (const char c : text) quoted_text += c == '"' ? "\"\"" : std::string(1, c);
  return quoted_text + "\"";
}

}  // namespace

std::string csv_line(const std::vector<std::string>& cells) {
  std::string text;
  for (const auto& cell : cells) text += (&cell == &cells.front() ? "" : ",") + quoted(cell);
  return text + "\r\n";
}

std::string csv_cell(const std::optional<double>& value) {
  return value ? format_number(*value) : "";
}

}  // namespace spillway
