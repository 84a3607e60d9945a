#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/os/file_system.h"
#include "spillway/spec.h"

namespace spillway {

/// One tensor of a safetensors file. Its bytes are `[begin, end)` after the header, little-endian
/// and row-major.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< "F32": as the format names it
  std::vector<std::int64_t> shape;
  Bytes begin = 0, end = 0;

  Bytes bytes() const { return end - begin; }
  bool operator==(const TensorEntry&) const = default;
};

using TensorMetadata = std::map<std::string, std::string>;

/// Bytes of one element; 0 for an unknown type.
Bytes element_bytes(std::string_view dtype);
/// The format's name of a type.
std::string safetensors_dtype(DType dtype);

/// Assigns consecutive byte ranges to the tensors, in the given order, by dtype and shape.
void place(std::span<TensorEntry> tensors);
/// The header of placed tensors: its length in 8 bytes, then JSON, padded to a multiple of 8 bytes.
/// Source: https://github.com/huggingface/safetensors.
std::string safetensors_header(std::span<const TensorEntry> tensors);

/// Where the bytes of a file come from.
struct ByteSource {
  std::string path;  ///< for messages
  Bytes size = 0;
  /// Fills all of `into` from `offset`, or throws.
  std::function<void(std::span<std::byte> into, Bytes offset)> read;
};
/// Reads all bytes. Throws what the source throws.
std::string bytes_of(const ByteSource& source);
/// A file, which stays open during the life of the source.
ByteSource file_source(FileSystem& files, const std::filesystem::path& path);

/// A safetensors file with a valid header: the tensors have known types, shapes that match their
/// bytes and distinct names, and cover the rest of the file without gaps or overlap. The file's
/// length bounds what is read.
class Safetensors {
 public:
  /// Reads and checks the header. Throws IoError, and CorruptData for any other file, such as
  /// PyTorch's own, with a way to convert it.
  explicit Safetensors(ByteSource source);

  /// In the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  /// In the order of the header.
  const std::vector<std::string>& names() const { return names_; }
  const TensorMetadata& metadata() const { return metadata_; }
  /// Throws CorruptData if there is no such tensor.
  const TensorEntry& at(std::string_view name) const;
  /// Where a tensor begins in the file.
  Bytes begin(const TensorEntry& tensor) const { return data_begin_ + tensor.begin; }
  /// Reads bytes of a tensor, starting at its byte `offset`. Throws what the source throws.
  void read(const TensorEntry& tensor, Bytes offset, std::span<std::byte> into) const;

 private:
  ByteSource source_;
  Bytes data_begin_ = 0;
  std::vector<TensorEntry> tensors_;
  std::vector<std::string> names_;
  TensorMetadata metadata_;
};

}  // namespace spillway
