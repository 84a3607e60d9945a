#pragma once

#include <cstring>
#include <span>
#include <string>

#include "core/safetensors/safetensors.h"
#include "tests/fuzz/input.h"

namespace spillway::testing {

/// A file in memory. Aborts at a read beyond its end.
inline ByteSource source_of(std::string bytes) {
  const auto size = bytes.size();
  return {.path = "input", .size = size, .read = [bytes](std::span<std::byte> into, Bytes offset) {
            require(offset <= bytes.size() && into.size() <= bytes.size() - offset,
                    "reads lie in the file");
            if (!into.empty()) std::memcpy(into.data(), bytes.data() + offset, into.size());
          }};
}

}  // namespace spillway::testing
