#pragma once

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <deque>
#include <functional>

#include "core/base/default_floats.h"
#include "core/base/mutex.h"
#include "trainer/runtime/op_runner.h"

namespace spillway {

/// Host ops on TBB's worker threads; an op may use parallel algorithms inside. An op begins once
/// the grains of those that run leave a thread idle. So the first of many updates has all threads,
/// and the layers that the next step needs first are updated first.
class TbbPool final : public HostPool {
 public:
  explicit TbbPool(int num_threads)
      : num_threads_(num_threads),
        threads_(tbb::global_control::max_allowed_parallelism,
                 static_cast<std::size_t>(num_threads) + 1),
        arena_(num_threads, /*reserved_for_masters=*/0) {
    const DefaultFloats of_workers;  // TBB's threads inherit the mode of the initialising thread
    arena_.initialize();
  }
  ~TbbPool() override;
  void submit(int grains, std::function<void()> work) override;

 private:
  struct Op {
    int threads = 1;  ///< that it keeps busy, at least one
    std::function<void()> work;
  };

  void start_next() SPILLWAY_REQUIRES(mutex_);

  const int num_threads_;
  tbb::global_control threads_;  // one more: TBB counts a calling thread, and none joins
  tbb::task_arena arena_;
  Mutex mutex_;
  CondVar quiet_;
  std::deque<Op> waiting_ SPILLWAY_GUARDED_BY(mutex_);
  int busy_ SPILLWAY_GUARDED_BY(mutex_) = 0;  ///< threads of the ops that run
};

}  // namespace spillway
