#pragma once

#include "core/os/file_system.h"
#include "trainer/checkpoint/generation_file.h"

namespace spillway {

inline constexpr const char* kManifestName = "MANIFEST";

/// Writes data files and manifest into an empty folder. It first reserves the space of all files,
/// so that a full disk fails before anything is written. When it returns, files, names and manifest
/// are on stable storage; the name of the folder is not. Throws IoError, Error for names that a
/// manifest cannot hold, and what `fill` throws; the folder then has no valid generation.
void write_generation(FileSystem& files, const FileSystem::Path& folder,
                      const GenerationContent& content, Bytes block_bytes);

/// Disk space that write_generation() takes.
Bytes generation_bytes(const GenerationContent& content, Bytes block_bytes);

}  // namespace spillway
