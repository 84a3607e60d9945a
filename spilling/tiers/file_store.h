#pragma once

#include <filesystem>
#include <memory>

#include "spilling/tiers/store.h"

namespace spillway {

/// Homes in mapped files of one folder: the system keeps used pages in memory and writes the others
/// to the disk. The files have no name, so they vanish with the process, however it ends.
class FileStore final : public Store {
 public:
  /// Throws IoError if no file can be created in `folder`.
  explicit FileStore(std::filesystem::path folder);
  /// Reserves the space on the disk. Throws OutOfMemory of the disk tier, or IoError if the file
  /// system cannot reserve space or does not support files of that size.
  std::unique_ptr<DeviceMemory> allocate(Bytes bytes) override;

 private:
  const std::filesystem::path folder_;
};

}  // namespace spillway
