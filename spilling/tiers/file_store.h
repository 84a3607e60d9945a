#pragma once

#include <filesystem>
#include <memory>

#include "spilling/tiers/store.h"

namespace spillway {

/// Homes in files of one folder, mapped: the system keeps in memory what is in use and writes the
/// rest to the disk. The files have no name and end with the process, whatever ends it.
class FileStore final : public Store {
 public:
  /// Throws IoError where no file can be made in `folder`.
  explicit FileStore(std::filesystem::path folder);
  /// Takes the space on the disk. Throws OutOfMemory of the disk tier, or IoError where the file
  /// system cannot reserve space or has no file that large.
  std::unique_ptr<DeviceMemory> allocate(Bytes bytes) override;

 private:
  const std::filesystem::path folder_;
};

}  // namespace spillway
