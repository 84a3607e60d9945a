// A program that is linked with this has the GPU's kernels as C++, and launches those.
#include "tests/support/gpu_on_host.h"
// After what it is written in.
#include "core/cuda/kernels.cu"
