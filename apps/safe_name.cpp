#include "apps/safe_name.h"

#include <cctype>

namespace spillway {

std::string safe_name(std::string_view text) {
  std::string name(text.substr(0, 150));
  for (auto& c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!plain && std::string_view("._=,+-").find(c) == std::string_view::npos) c = '_';
  }
  const bool hidden = name.empty() || name.front() == '.';
  return hidden ? "_" + name : name;
}

}  // namespace spillway
