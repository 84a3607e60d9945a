#pragma once

#include "core/os/file_system.h"
#include "trainer/checkpoint/generation_file.h"

namespace spillway {

inline constexpr const char* kManifestName = "MANIFEST";

/// Writes data files and manifest into `folder`, which is there and empty. First the space of all
/// is reserved, so that a full disk shows before anything is written. Files, names and manifest are
/// on stable storage when it returns, the name of the folder is not. Throws IoError, Error for
/// names that a manifest cannot hold, and what `fill` throws; what lies in the folder is then
/// worth nothing.
void write_generation(FileSystem& files, const FileSystem::Path& folder,
                      const GenerationContent& content, Bytes block_bytes);

/// What write_generation() takes on a disk.
Bytes generation_bytes(const GenerationContent& content, Bytes block_bytes);

}  // namespace spillway
