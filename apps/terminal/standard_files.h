#pragma once

namespace spillway {

/// Opens /dev/null for each closed descriptor among 0, 1 and 2. Otherwise the first file that the
/// program opens could become its standard output.
void open_standard_files();

/// Returns a new descriptor of standard output and redirects descriptor 1 to standard error, so
/// that libraries print there. Returns 1 on failure.
int take_standard_output();

}  // namespace spillway
