#pragma once

#include <cstdint>
#include <string_view>

#include "core/os/file_system.h"
#include "core/safetensors/safetensors.h"
#include "trainer/checkpoint/manifest.h"

namespace spillway {

/// A generation of checkpoints in a folder. Reading checks each block against the manifest. Throws
/// IoError; CorruptData, which names the file and the problem.
class Generation {
 public:
  /// Reads the manifest. Also throws NewerFormat.
  Generation(FileSystem& files, FileSystem::Path folder, std::uint64_t number);

  std::uint64_t number() const { return number_; }
  const Manifest& manifest() const { return manifest_; }
  bool has(std::string_view name) const;
  /// A data file, open during the life of the source. For one thread at a time.
  ByteSource file(std::string_view name) const;
  /// Reads every byte.
  void verify() const;

 private:
  FileSystem* files_;
  FileSystem::Path folder_;
  std::uint64_t number_;
  Manifest manifest_;
};

}  // namespace spillway
