#include <unistd.h>

#include <iostream>

#include "apps/program.h"
#include "apps/signals.h"

int main(int argc, char** argv) {
  spillway::take_state_signal();
  return spillway::run_program(
      argc, argv,
      {.out = std::cout, .log = std::cerr, .out_file = STDOUT_FILENO, .log_file = STDERR_FILENO});
}
