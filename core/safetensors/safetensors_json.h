#pragma once

#include <string_view>
#include <vector>

#include "core/safetensors/safetensors.h"

namespace spillway {

/// The content of a safetensors header.
struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< in the order of the text
  TensorMetadata metadata;
};

/// Throws Error for anything but the format's objects, for repeated names, and for numbers that are
/// not 63-bit counts.
SafetensorsHeader parse_safetensors_header(std::string_view json);

}  // namespace spillway
