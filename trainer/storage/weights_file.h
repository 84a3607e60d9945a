#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/os/file_system.h"
#include "core/safetensors/safetensors.h"
#include "spillway/spec.h"

namespace spillway {

/// One tensor, f32 or i64, that is read piece by piece. An empty shape has one element.
struct NamedArray {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
  /// Reads bytes from `offset` on. Called for consecutive pieces, from the first byte to the last;
  /// then from the first again, unless whoever made the array says that it can be read once.
  std::function<void(std::span<std::byte> into, Bytes offset)> read;
};
/// An array whose bytes outlive it.
NamedArray array_of(std::string name, std::vector<std::int64_t> shape,
                    std::span<const std::byte> bytes, DType dtype = DType::f32);

/// XXH3-128 (seed 0) of the arrays in the given order, as 32 hex digits, high half first.
/// It hashes for each array: its name, one zero byte, the rank as little-endian uint64, each
/// dimension as little-endian int64, and the little-endian data.
std::string weights_xxh3(std::span<const NamedArray> arrays);

/// The tensors of a safetensors file, in the order of its header. Throws CorruptData for a type
/// that is neither f32 nor i64; this and reading throw what Safetensors throws.
std::vector<NamedArray> arrays_in(ByteSource file);

/// Writes the arrays as a safetensors file, atomically. The header lists them in the given order;
/// larger elements come first in the data, so that all are aligned. Names must differ. Throws
/// IoError.
/// Source: https://github.com/huggingface/safetensors, section "Format".
void write_safetensors(const std::filesystem::path& path, std::span<const NamedArray> arrays,
                       FileSystem& files = posix_file_system());

}  // namespace spillway
