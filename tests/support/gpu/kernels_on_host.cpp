// A program that is linked with this has the GPU's kernels as C++, and launches those.
#include "tests/support/gpu/gpu_on_host.h"
// After what it is written in.
#include "core/device/cuda/kernels.cu"
