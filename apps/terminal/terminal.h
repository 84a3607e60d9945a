#pragma once

#include <iosfwd>
#include <optional>
#include <string_view>

namespace spillway {

struct TerminalSize {
  int columns = 80, rows = 24;
};

/// The size of a descriptor's terminal; nullopt if it is not a terminal with a movable cursor.
std::optional<TerminalSize> terminal_size(int file);

/// Makes tables on `out` no wider than the terminal of `file`, if it is one.
void fit_tables(std::ostream& out, int file);

/// Writes raw text, including control characters. Ignores errors: the terminal may be gone.
void write_to_terminal(int file, std::string_view text);

}  // namespace spillway
