#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/os/file_system.h"
#include "spillway/spec.h"

namespace spillway {

/// A view of one tensor, f32 or i64, whose bytes may lie in several places. An empty shape has one
/// element.
struct NamedArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::span<const std::byte>> data;  ///< in order
  DType dtype = DType::f32;
};

/// XXH3-128 (seed 0) of the arrays in the given order, as 32 hex digits, high half first.
/// It hashes for each array: its name, one zero byte, the rank as little-endian uint64, each
/// dimension as little-endian int64, and the little-endian data.
std::string weights_xxh3(std::span<const NamedArray> arrays);

/// The same hash of a file of write_safetensors(). Throws IoError and CorruptData.
std::string xxh3_of_weights_file(const std::filesystem::path& file,
                                 FileSystem& files = posix_file_system());

/// Writes the arrays as a safetensors file, atomically. The header lists them in the given order;
/// larger elements come first in the data, so that all are aligned. Names must differ. Throws
/// IoError.
/// Source: https://github.com/huggingface/safetensors, section "Format".
void write_safetensors(const std::filesystem::path& path, std::span<const NamedArray> arrays,
                       FileSystem& files = posix_file_system());

}  // namespace spillway
