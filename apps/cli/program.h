#pragma once

#include "apps/cli/cli.h"

namespace spillway {

/// Whether --json is among the arguments, so that standard output is one JSON document.
bool asks_for_json(int argc, const char* const* argv);

/// Runs the program: parses the arguments and runs the selected command. Reports an error on
/// `output.log`, with --json also on `output.out`. Never throws.
ExitCode run_program(int argc, const char* const* argv, const Output& output);

}  // namespace spillway
