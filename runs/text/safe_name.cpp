#include "runs/text/safe_name.h"

#include <cctype>

#include "runs/text/utf8.h"

namespace spillway {
namespace {

bool is_plain(const Utf8Char& c) {
  if (!c.is_valid) return false;
  if (c.code > 0x7F) return !is_control(c.code) && !is_blank(c.code);
  const char ascii = static_cast<char>(c.code);
  return std::isalnum(static_cast<unsigned char>(ascii)) != 0 ||
         std::string_view("._=,+-").find(ascii) != std::string_view::npos;
}

}  // namespace

std::string safe_name(std::string_view text) {
  constexpr std::size_t kMaxBytes = 150;
  std::string name = text.empty() || text.front() == '.' ? "_" : "";
  while (!text.empty()) {
    const Utf8Char next = first_char(text);
    const std::string_view bytes = is_plain(next) ? text.substr(0, next.num_bytes) : "_";
    if (name.size() + bytes.size() > kMaxBytes) break;
    name += bytes;
    text.remove_prefix(next.num_bytes);
  }
  return name;
}

}  // namespace spillway
