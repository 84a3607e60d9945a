#include "runs/folder/cache_file.h"

#include <cstdlib>
#include <string>

namespace spillway {

std::filesystem::path pilot_cache_file() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value ? value : "");
  };
  auto cache = variable("XDG_CACHE_HOME");
  if (cache.empty() && !variable("HOME").empty()) cache = variable("HOME") / ".cache";
  return cache.empty() ? cache : cache / "spillway" / "pilot.json";
}

}  // namespace spillway
