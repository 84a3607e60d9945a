#pragma once

#include <cuda_runtime_api.h>
#include <ucontext.h>

#include <array>
#include <functional>
#include <memory>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/support/gpu/fake_cudart.h"

/// Compiles kernels with a C++ compiler: include it before them. They run on the streams of
/// fake_cudart.h. Tests see what a kernel computes, which of its barriers it needs, and, with
/// sanitizers, which memory it accesses; nothing about a GPU's compiler.

inline thread_local uint3 blockIdx, threadIdx;

#undef __shared__
#define __shared__ static thread_local  // blocks of a stream run one after the other

namespace spillway::testing {

/// A block's threads, as fibers that take turns: each runs until it waits for all of them. The
/// order of turns changes with each wait, so a missing barrier shows.
class HostBlock {
 public:
  HostBlock(unsigned threads, const std::function<void()>& kernel)
      : threads_(threads), kernel_(kernel) {}

  void run(unsigned block) {
    blockIdx = {block, 0, 0};
    current() = this;
    while (next_ < threads_) resume(*fibers_.emplace_back(std::make_unique<Fiber>(&begin)));
    for (bool backward = true; ran_on_ > 0; backward = !backward) {
      if (ran_on_ != threads_) throw std::logic_error("a thread of a block ended before a barrier");
      ran_on_ = 0;
      for (unsigned i = 0; i < threads_; ++i) resume(*fibers_[backward ? threads_ - 1 - i : i]);
    }
  }

  /// The block whose kernel this thread runs.
  static HostBlock*& current() {
    thread_local HostBlock* block = nullptr;
    return block;
  }

  /// Of all threads of the block.
  void wait() {
    ++ran_on_;
    swapcontext(&running_->context, &scheduler_);
  }

  double exchange(double value, unsigned with) {
    running_->shown = value;
    wait();
    const double other = fibers_.at(with)->shown;
    wait();
    return other;
  }

 private:
  struct Fiber {
    explicit Fiber(void (*body)()) {
      getcontext(&context);
      context.uc_stack = {.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
      makecontext(&context, body, 0);
    }
    std::array<std::byte, 64 << 10> stack;
    ucontext_t context;
    unsigned thread = 0;
    double shown = 0;
  };

  /// Runs threads until one waits; then another fiber continues.
  static void begin() {
    HostBlock& block = *current();
    while (block.next_ < block.threads_) {
      threadIdx = {block.running_->thread = block.next_++, 0, 0};
      block.kernel_();
    }
    setcontext(&block.scheduler_);
  }

  void resume(Fiber& fiber) {
    running_ = &fiber;
    threadIdx = {fiber.thread, 0, 0};
    swapcontext(&scheduler_, &fiber.context);
  }

  const unsigned threads_;
  const std::function<void()>& kernel_;
  std::vector<std::unique_ptr<Fiber>> fibers_;  // where each thread waits
  Fiber* running_ = nullptr;
  ucontext_t scheduler_;
  unsigned next_ = 0;    // thread
  unsigned ran_on_ = 0;  // threads at the barrier
};

}  // namespace spillway::testing

inline void __syncthreads() { spillway::testing::HostBlock::current()->wait(); }

inline double __shfl_xor_sync(unsigned, double value, int apart) {
  return spillway::testing::HostBlock::current()->exchange(
      value, threadIdx.x ^ static_cast<unsigned>(apart));
}

namespace spillway::testing {

/// An argument of a kernel as the kernel receives it.
template <typename T>
T argument(void* given) {
  T value = *static_cast<T*>(given);
  if constexpr (std::is_pointer_v<T>) value = reinterpret_cast<T>(seen_by_kernel(value));
  return value;
}

}  // namespace spillway::testing

template <typename... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                             std::size_t, cudaStream_t stream) {
  const auto values = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return std::tuple<P...>(spillway::testing::argument<P>(arguments[i])...);
  }
  (std::index_sequence_for<P...>());
  spillway::testing::launch(stream, [=] {
    const std::function<void()> thread = [&] { std::apply(kernel, values); };
    for (unsigned i = 0; i < grid.x; ++i) spillway::testing::HostBlock(block.x, thread).run(i);
  });
  return cudaSuccess;
}
