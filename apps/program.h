#pragma once

#include "apps/cli.h"

namespace spillway {

/// The whole program: reads the arguments, runs the command they name, says on `output.log` why it
/// did not work. Throws nothing.
ExitCode run_program(int argc, const char* const* argv, const Output& output);

}  // namespace spillway
