#pragma once

#include <string_view>
#include <vector>

#include "trainer/storage/safetensors.h"

namespace spillway {

/// What the JSON of a safetensors header says, as far as it can be checked without the file.
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< in the order of the text
  TensorMetadata metadata;
};

/// Throws Error with what is wrong: anything but the format's objects, names that repeat, and
/// numbers that are no 63-bit counts.
SafetensorsHeader parse_safetensors_header(std::string_view json);

}  // namespace spillway
