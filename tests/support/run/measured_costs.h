#pragma once

#include <filesystem>

#include "tests/support/disk/temporary_folder.h"

namespace spillway::testing {

/// A file of measured costs for the sessions of this process, which so measure only once.
inline std::filesystem::path measured_costs() {
  static const TemporaryFolder folder;
  return folder / "pilot.json";
}

}  // namespace spillway::testing
