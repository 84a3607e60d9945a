#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace spillway {

/// Locks a run's folder for one process by its file `lock`. The system releases the lock when the
/// process ends, also if it crashes. The file contains the process id as text, and nothing once the
/// lock was released in order. Move-only.
class RunLock {
 public:
  /// Throws IoError, and InUse with the process that holds the folder.
  explicit RunLock(std::filesystem::path folder);
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

  const std::filesystem::path& folder() const { return folder_; }
  /// Whether the process that had it last has crashed or was killed.
  bool follows_crash() const { return follows_crash_; }
  /// If this process is killed from now on, that is no crash: it ends in order.
  void end_in_order() const;
  /// Whoever has it next follows a crash, too.
  void keep_mark() { keeps_mark_ = true; }

 private:
  std::filesystem::path folder_;
  int file_ = -1;
  bool follows_crash_ = false, keeps_mark_ = false;
};

/// The process that holds the folder ("process 4711"), if any. The query takes no lock, so it never
/// blocks a process that is about to take it.
std::optional<std::string> holder_of(const std::filesystem::path& folder);

}  // namespace spillway
