#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/contract.h"
#include "spillway/units.h"

namespace spillway {

/// A data file of a generation: its length and the XXH3 of each block of it, as `xxh3` has it. The
/// last block may be short; an empty file has none.
struct ManifestFile {
  std::string name;
  Bytes bytes = 0;
  std::vector<std::string> blocks;
  bool operator==(const ManifestFile&) const = default;
};

/// What one generation of checkpoints is and holds. As text it ends with a hash of itself, so that
/// it is complete or nothing; docs/formats.md has every byte.
struct Manifest {
  static constexpr std::uint64_t kVersion = 1;
  static constexpr Bytes kMaxBlockBytes = 64_MiB, kMaxBytes = 256_MiB;

  std::string job;
  std::uint64_t step = 0;
  std::string build;
  Contract contract;
  Bytes block_bytes = 1_MiB;
  std::vector<ManifestFile> files;

  bool operator==(const Manifest&) const = default;
};

/// How many blocks a file of `bytes` has.
std::uint64_t num_blocks(Bytes bytes, Bytes block_bytes);

/// The text that is written. Its length depends on no hash. Throws Error unless the files have
/// names of their own that are plain names, and blocks as their length says.
std::string to_text(const Manifest& manifest);

/// Takes exactly what to_text() makes. Throws CorruptData naming `path` for anything else,
/// NewerFormat for a sound manifest of another version.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace spillway
