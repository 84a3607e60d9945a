#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

namespace spillway::testing {

/// Bytes as a regular file in memory.
class InputFile {
 public:
  InputFile(const std::uint8_t* data, std::size_t size)
      : file_(::memfd_create("input", MFD_CLOEXEC)) {
    if (file_ < 0 || ::write(file_, data, size) != static_cast<ssize_t>(size))
      throw std::system_error(errno, std::generic_category(), "no file in memory");
  }
  ~InputFile() { ::close(file_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  int file_;
};

}  // namespace spillway::testing
