#include "trainer/torch_gpu.h"

#include "core/error.h"

namespace spillway {

void load_torch_gpu() {
  throw ConfigError("kind", 0, "is cuda, but this Spillway was built without CUDA; use kind: cpu");
}

void bind_torch_thread(int, void*) {}

}  // namespace spillway
