#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/base/mutex.h"

namespace spillway {

/// Seeds LibTorch's global CPU generator as torch::manual_seed does; the destructor restores it.
/// Only one exists at a time in the process; others wait.
class SeededGenerator {
 public:
  explicit SeededGenerator(std::uint64_t seed);
  ~SeededGenerator();
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

  /// The generator's state, which changes when a number is drawn.
  static at::Tensor state();

 private:
  MutexLock turn_;
  at::Tensor state_;
};

}  // namespace spillway
