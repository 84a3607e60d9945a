#include "core/os/disk.h"

#include <sys/stat.h>

#include "core/os/file_system.h"

namespace spillway {

bool share_disk(const std::filesystem::path& a, const std::filesystem::path& b) {
  struct stat of_a = {}, of_b = {};
  return ::stat(existing_part(a).c_str(), &of_a) == 0 &&
         ::stat(existing_part(b).c_str(), &of_b) == 0 && of_a.st_dev == of_b.st_dev;
}

}  // namespace spillway
