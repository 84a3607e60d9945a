#pragma once

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include "core/base/default_floats.h"
#include "core/base/mutex.h"
#include "trainer/runtime/op_runner.h"

namespace spillway {

/// Host ops on TBB's worker threads; an op may use parallel algorithms inside.
class TbbPool final : public HostPool {
 public:
  explicit TbbPool(int num_threads)
      : threads_(tbb::global_control::max_allowed_parallelism,
                 static_cast<std::size_t>(num_threads) + 1),
        arena_(num_threads, /*reserved_for_masters=*/0) {
    const DefaultFloats of_workers;  // TBB's threads inherit the mode of the initialising thread
    arena_.initialize();
  }
  ~TbbPool() override;
  void submit(std::function<void()> work) override;

 private:
  tbb::global_control threads_;  // one more: TBB counts a calling thread, and none joins
  tbb::task_arena arena_;
  Mutex mutex_;
  CondVar quiet_;
  int running_ SPILLWAY_GUARDED_BY(mutex_) = 0;
};

}  // namespace spillway
