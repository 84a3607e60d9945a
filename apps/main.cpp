#include <unistd.h>

#include <iostream>

#include "apps/program.h"

int main(int argc, char** argv) {
  return spillway::run_program(
      argc, argv,
      {.out = std::cout, .log = std::cerr, .out_file = STDOUT_FILENO, .log_file = STDERR_FILENO});
}
