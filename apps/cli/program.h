#pragma once

#include "apps/cli/cli.h"

namespace spillway {

/// Whether --json is among the arguments: standard output is one JSON document then.
bool asks_for_json(int argc, const char* const* argv);

/// The whole program: reads the arguments and runs the command that they name. Why it did not work
/// goes to `output.log`, with --json also to `output.out`. Throws nothing.
ExitCode run_program(int argc, const char* const* argv, const Output& output);

}  // namespace spillway
