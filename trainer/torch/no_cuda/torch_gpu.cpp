#include "trainer/torch/torch_gpu.h"

#include "spillway/error.h"

namespace spillway {

void offer_torch_gpu() {}

void load_torch_gpu() {
  // Never called: without CUDA there are no GPU devices.
  throw ConfigError(
      "kind", 0,
      "is cuda, but this Spillway was built with a LibTorch that has no part for GPUs; "
      "build it with one for CUDA 13, or use kind: cpu");
}

void bind_torch_thread(int, void*) {}

void free_torch_workspaces(void*) {}

}  // namespace spillway
