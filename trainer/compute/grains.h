#pragma once

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstddef>

#include "scheduler/plan/program.h"

namespace spillway {

/// Calls `run(begin, size)` for parts of `n` elements, on several threads of TBB if they are many.
/// Meanwhile these threads begin no other host op.
template <typename Run>
void in_grains(std::size_t n, const Run& run) {
  constexpr std::size_t kElements = kHostGrain / sizeof(float);
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(std::size_t{0}, (n + kElements - 1) / kElements, [&](std::size_t grain) {
      const std::size_t begin = grain * kElements;
      run(begin, std::min(kElements, n - begin));
    });
  });
}

}  // namespace spillway
