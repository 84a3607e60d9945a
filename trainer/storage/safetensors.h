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

/// One tensor of a safetensors file: `[begin, end)` are its bytes, counted from the end of the
/// header, little-endian and row-major.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< "F32": as the format names it
  std::vector<std::int64_t> shape;
  Bytes begin = 0, end = 0;

  Bytes bytes() const { return end - begin; }
  bool operator==(const TensorEntry&) const = default;
};

using TensorMetadata = std::map<std::string, std::string>;

/// Bytes of one element, 0 for a type that is not known.
Bytes element_bytes(std::string_view dtype);
/// The format's name of a type.
std::string safetensors_dtype(DType dtype);

/// Lays tensors out one behind the other in the given order, by dtype and shape.
void place(std::span<TensorEntry> tensors);
/// What stands before the data: 8 bytes with the length of the rest, and the rest, whose length is
/// a multiple of 8. The tensors are placed. Source: https://github.com/huggingface/safetensors.
std::string safetensors_header(std::span<const TensorEntry> tensors);

/// Where the bytes of a file come from.
struct ByteSource {
  std::string path;  ///< for messages
  Bytes size = 0;
  /// Fills all of `into` from `offset`, or throws.
  std::function<void(std::span<std::byte> into, Bytes offset)> read;
};
/// All of them. Throws what reading throws.
std::string bytes_of(const ByteSource& source);
/// A file, open as long as the source is there.
ByteSource file_source(FileSystem& files, const std::filesystem::path& path);

/// A safetensors file. Everything that its header says is checked before any of it is believed:
/// the tensors have known types and a shape that their bytes match, names differ, and they cover
/// the rest of the file without holes or overlap. What is read is bounded by the file's length.
class Safetensors {
 public:
  /// Reads the header. Throws IoError; CorruptData for any file that is not as said, such as
  /// PyTorch's own, with a way to convert it.
  explicit Safetensors(ByteSource source);

  /// In the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  /// In the order of the header.
  const std::vector<std::string>& names() const { return names_; }
  const TensorMetadata& metadata() const { return metadata_; }
  /// Throws CorruptData, naming the file, where there is none of that name.
  const TensorEntry& at(std::string_view name) const;
  /// Reads bytes of a tensor from its byte `offset`. Throws what the source does.
  void read(const TensorEntry& tensor, Bytes offset, std::span<std::byte> into) const;

 private:
  ByteSource source_;
  Bytes data_begin_ = 0;
  std::vector<TensorEntry> tensors_;
  std::vector<std::string> names_;
  TensorMetadata metadata_;
};

}  // namespace spillway
