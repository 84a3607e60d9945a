#pragma once

#include <string>

namespace spillway::testing {

/// For EXPECT_PRED2, which then prints both.
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace spillway::testing
