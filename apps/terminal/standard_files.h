#pragma once

namespace spillway {

/// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed. Without it the first file
/// that the program opens would become its standard output.
void open_standard_files();

/// Returns a new descriptor of standard output, and makes descriptor 1 one of standard error: what
/// libraries print goes there. Returns 1 where that fails.
int take_standard_output();

}  // namespace spillway
