#include <unistd.h>
#include <ext/stdio_filebuf.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "apps/cli/program.h"
#include "apps/terminal/signals.h"
#include "apps/terminal/standard_files.h"

namespace {

void begin() {
  spillway::open_standard_files();
  spillway::take_state_signal();
}

/// Runs before the constructors of LibTorch, which take a fifth of a second.
[[gnu::section(".preinit_array"), gnu::used]] void (*const kBegin)() = begin;

int run(int argc, char** argv) {
  if (!spillway::asks_for_json(argc, argv)) {
    return spillway::run_program(
        argc, argv,
        {.out = std::cout, .log = std::cerr, .out_file = STDOUT_FILENO, .log_file = STDERR_FILENO});
  }
  // Nothing but the document reaches standard output, whatever libraries print.
  const int document_file = spillway::take_standard_output();
  spillway::stop_with_document(document_file);
  __gnu_cxx::stdio_filebuf<char> document(document_file, std::ios::out);
  std::ostream out(&document);
  return spillway::run_program(argc, argv,
                               {.out = out, .log = std::cerr, .log_file = STDERR_FILENO});
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run(argc, argv);
  std::cout.flush();
  std::fflush(nullptr);
  // Without the destructors of LibTorch, which take a tenth of a second, and handlers of atexit().
  std::quick_exit(code);
}
