#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/contract.h"
#include "spillway/units.h"

namespace spillway {

/// A data file of a generation: its length and the hash of each block, as xxh3() makes it. The last
/// block may be short; an empty file has none.
struct ManifestFile {
  std::string name;
  Bytes bytes = 0;
  std::vector<std::string> blocks;
  bool operator==(const ManifestFile&) const = default;
};

/// The contents of one generation of checkpoints. The text ends with a hash of itself, so that a
/// truncated text is never accepted; docs/formats.md describes every byte.
struct Manifest {
  static constexpr std::uint64_t kVersion = 2;
  static constexpr Bytes kMaxBlockBytes = 64_MiB, kMaxBytes = 256_MiB;

  std::uint64_t version = kVersion;
  std::string job;
  std::uint64_t step = 0;
  std::string build;
  Contract contract;
  Bytes block_bytes = 1_MiB;
  std::vector<ManifestFile> files;

  bool operator==(const Manifest&) const = default;
};

/// The number of blocks of a file.
std::uint64_t num_blocks(Bytes bytes, Bytes block_bytes);

/// The text of the file. Its length does not depend on the hashes. Throws Error unless file names
/// are plain and distinct, and each file has the number of blocks that its length requires.
std::string to_text(const Manifest& manifest);

/// Parses exactly what to_text() makes. Throws NewerFormat for a valid manifest of a newer version,
/// and CorruptData for anything else; both name `path`.
Manifest parse_manifest(const std::string& text, const std::string& path);

}  // namespace spillway
