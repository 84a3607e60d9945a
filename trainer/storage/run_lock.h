#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace spillway {

/// One process's claim to a run's folder: a lock on the file `lock` in it, which the system drops
/// when the process ends, however it ends. The file holds the process id as text. Move-only.
class RunLock {
 public:
  /// Throws InUse, which names the process that holds the folder, and IoError.
  explicit RunLock(std::filesystem::path folder);
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int file_ = -1;
};

/// Who holds the folder ("process 4711"); nothing where nobody does. It takes no lock, so it never
/// gets in the way of a process that is about to.
std::optional<std::string> holder_of(const std::filesystem::path& folder);

}  // namespace spillway
