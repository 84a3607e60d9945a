#include "apps/safe_name.h"

#include <cctype>

namespace spillway {

std::string safe_name(std::string_view text) {
  constexpr std::size_t kMaxBytes = 150;
  std::string name(text.substr(0, kMaxBytes));
  for (auto& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!plain && std::string_view("._=,+-").find(c) == std::string_view::npos) c = '_';
  }
  if (name.empty() || name.front() == '.') name.insert(0, 1, '_');
  return name.substr(0, kMaxBytes);
}

}  // namespace spillway
