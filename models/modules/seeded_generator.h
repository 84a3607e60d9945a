#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/base/mutex.h"

namespace spillway {

/// LibTorch's global generator of the CPU, seeded as by torch::manual_seed and restored in the end.
/// One at a time in the process; others wait.
class SeededGenerator {
 public:
  explicit SeededGenerator(std::uint64_t seed);
  ~SeededGenerator();
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

  /// Of the generator: it changes when a number is drawn.
  static at::Tensor state();

 private:
  MutexLock turn_;
  at::Tensor state_;
};

}  // namespace spillway
