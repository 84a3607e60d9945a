#pragma once

#include <iosfwd>

#include "apps/terminal/exit_code.h"

namespace spillway {

struct DoctorOptions {
  bool json = false;  ///< one JSON document instead of text
};

/// `spillway doctor`: prints versions, cores, memory, devices, and the rates that plans use.
ExitCode doctor(const DoctorOptions& options, std::ostream& out);

}  // namespace spillway
