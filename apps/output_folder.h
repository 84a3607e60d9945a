#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/units.h"

namespace spillway {

/// Where a run writes: events.jsonl, results.csv, trials/NAME/ and more. A file `.spillway` marks a
/// folder as written by a run; nothing in a folder without it is ever touched.
class OutputFolder {
 public:
  explicit OutputFolder(std::filesystem::path path) : path_(std::move(path)) {}

  /// Why a run cannot write here and what to do; empty if it can. Leaves nothing behind.
  std::string problem(bool overwrite) const;
  /// Makes the folder, and one for each trial; removes the outputs of an earlier run. Call only
  /// where there is no problem(). Throws IoError.
  void create(const std::vector<std::string>& trials) const;

  /// On the disk that it is on, or would be. Throws IoError.
  Bytes free_bytes() const;

  std::filesystem::path file(const std::string& name) const { return path_ / name; }
  std::filesystem::path weights_file(const std::string& trial) const;
  std::filesystem::path checkpoints(const std::string& trial) const;
  const std::filesystem::path& path() const { return path_; }
  /// Writes a text file, whole or not at all. Throws IoError.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

}  // namespace spillway
