#pragma once

#include <tbb/task_arena.h>

#include <condition_variable>
#include <mutex>

#include "trainer/op_runner.h"

namespace spillway {

/// Host ops on TBB's worker threads; an op may use parallel algorithms inside.
class TbbPool final : public HostPool {
 public:
  explicit TbbPool(int num_threads) : arena_(num_threads, /*reserved_for_masters=*/0) {}
  ~TbbPool() override;
  void submit(std::function<void()> work) override;

 private:
  tbb::task_arena arena_;
  std::mutex mutex_;
  std::condition_variable quiet_;
  int running_ = 0;  // under mutex_
};

}  // namespace spillway
