#pragma once

#include <filesystem>

namespace spillway {

/// One process's claim to a run's folder: the file `lock` in it, locked as long as this lives, by
/// flock(), so that it ends with the process however that ends. Holds the process id as text.
class RunLock {
 public:
  /// Throws Error, which names the process that holds the folder; IoError.
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace spillway
