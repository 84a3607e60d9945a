#include "apps/terminal/standard_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace spillway {

void open_standard_files() {
  for (int file = STDIN_FILENO; file <= STDERR_FILENO; ++file) {
    // open() takes the lowest free descriptor, which is this one.
    if (::fcntl(file, F_GETFD) < 0) ::open("/dev/null", O_RDWR);
  }
}

int take_standard_output() {
  std::fflush(stdout);
  const int taken = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (taken < 0) return STDOUT_FILENO;
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  return taken;
}

}  // namespace spillway
