#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace spillway {

/// A view of one tensor: `data` has as many elements as `shape` says (one for an empty shape).
struct NamedArray {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> data;
};

/// XXH3-128 (seed 0) of the arrays in the given order, as 32 hex digits, high half first.
/// Hashed for each array, nothing between: the bytes of its name, one zero byte, the rank as
/// little-endian uint64, each dimension as little-endian int64, the fp32 data, little-endian.
std::string weights_xxh3(std::span<const NamedArray> arrays);

/// Writes the arrays in the given order as a safetensors file, whole or not at all. Names differ.
/// Throws IoError.
/// Source: https://github.com/huggingface/safetensors, section "Format".
void write_safetensors(const std::filesystem::path& path, std::span<const NamedArray> arrays);

}  // namespace spillway
