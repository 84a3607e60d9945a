#pragma once

#include <iosfwd>

#include "apps/terminal/exit_code.h"

namespace spillway {

struct DoctorOptions {
  bool json = false;  ///< one JSON document instead of text
};

/// `spillway doctor`: versions, cores, memory, devices, and the rates on which plans rest.
ExitCode doctor(const DoctorOptions& options, std::ostream& out);

}  // namespace spillway
