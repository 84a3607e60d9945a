#pragma once

#include <vector>

#include "scheduler/plan/program.h"

namespace spillway {

/// Fills what follows from the ops, units and host ops of a program: who uses and reads which
/// buffer, who waits for whom, and what each track needs of its device.
void index(Program& program, const std::vector<BufferSpec>& buffers);

}  // namespace spillway
