// Compiles the GPU kernels as C++ and launches them.
#include "tests/support/gpu/gpu_on_host.h"
// Include after gpu_on_host.h.
#include "core/device/cuda/kernels.cu"
