#pragma once

#include <unistd.h>

#include <fstream>

#include "spillway/units.h"

namespace spillway::testing {

/// The resident memory of this process.
inline Bytes resident_bytes() {
  Bytes total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * static_cast<Bytes>(sysconf(_SC_PAGESIZE));
}

}  // namespace spillway::testing
