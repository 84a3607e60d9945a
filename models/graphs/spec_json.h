#pragma once

#include <string>

#include "models/graphs/exported_spec.h"

namespace spillway {

/// The newest version of the format.
inline constexpr std::uint64_t kExportedVersion = 1;

/// Reads the document of an exported model whose tensors are `tensors`, and checks it: all names,
/// numbers, types and shapes, but not which operators there are. Throws NewerFormat with `path`,
/// and Error with the place of the problem.
ExportedSpec exported_spec(const std::string& text, const Safetensors& tensors,
                           const std::string& path);

}  // namespace spillway
