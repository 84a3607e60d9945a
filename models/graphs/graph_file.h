#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "models/data/data_files.h"
#include "models/graphs/exported_spec.h"

namespace spillway {

/// An exported model: its document and, on demand, its tensors. Any thread may read. Each read
/// gives what the file had at construction, or throws Error because the file has changed.
class GraphFile {
 public:
  /// Throws CorruptData for a file that is no valid model, NewerFormat, IoError, and Error if there
  /// is no such file.
  explicit GraphFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  const ExportedSpec& spec() const { return spec_; }
  const Safetensors& tensors() const { return tensors_; }
  /// XXH3-128 of all bytes, which this reads.
  std::string xxh3() const;
  /// Of the bytes of one tensor.
  std::string xxh3(const TensorEntry& tensor) const;
  /// Where a tensor begins in the file.
  Bytes begin(const TensorEntry& tensor) const { return tensors_.begin(tensor); }
  /// Bytes of the file, read as they are needed. They must not be written.
  std::shared_ptr<std::byte> map(Bytes begin, Bytes bytes) const;

 private:
  std::string path_;
  std::shared_ptr<const DataFiles> file_;
  ByteSource source_;
  Safetensors tensors_;
  ExportedSpec spec_;
};

}  // namespace spillway
