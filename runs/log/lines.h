#pragma once

#include <filesystem>
#include <istream>
#include <string>
#include <string_view>

namespace spillway {

/// Reads the next line that ends with a newline. A last line without one is incomplete: its writer
/// has crashed or is still writing.
inline bool read_line(std::istream& in, std::string& line) {
  return std::getline(in, line) && !in.eof();
}

/// Writes all of `text` to a descriptor; `path` is for messages. Throws IoError.
void write_all(int file, std::string_view text, const std::filesystem::path& path);

/// Appends `text` to a file, which is opened with these flags too. Follows no symbolic link. Throws
/// IoError.
void append_to(const std::filesystem::path& path, std::string_view text, int flags);

}  // namespace spillway
