#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <thread>

#include "tests/support/models/small_nets.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/models/tiny_gpt.h"
#include "tests/support/models/wrapped_model.h"
#include "tests/support/run/training_run.h"

/// Counts the memory that device threads take from the C library, and all mappings, independently
/// of Spillway's own accounting: this program's malloc and mmap are the ones below.

namespace {

/// Uncounted blocks: records of LibTorch's graphs.
constexpr std::size_t kSmall = 2048;

thread_local bool is_device_thread = false;
std::atomic<std::size_t> live = 0, peak = 0, mapped = 0, mapped_peak = 0;

void raise(std::atomic<std::size_t>& peak_of, std::size_t value) {
  std::size_t known = peak_of;
  while (known < value && !peak_of.compare_exchange_weak(known, value)) {
  }
}

/// Addresses of counted blocks; any thread may free them.
class Blocks {
 public:
  void add(void* block) {
    if (block == nullptr || !is_device_thread) return;
    const std::size_t bytes = malloc_usable_size(block);
    if (bytes < kSmall) return;
    for (auto& slot : slots_) {
      void* empty = nullptr;
      if (slot.load(std::memory_order_relaxed) != nullptr) continue;
      if (slot.compare_exchange_strong(empty, block)) {
        raise(peak, live += bytes);
        return;
      }
    }
    abort();  // more live blocks than slots
  }
  void remove(void* block) {
    if (block == nullptr || live == 0) return;
    const std::size_t bytes = malloc_usable_size(block);
    if (bytes < kSmall) return;
    for (auto& slot : slots_) {
      if (slot.load(std::memory_order_relaxed) != block) continue;
      live -= bytes;
      slot = nullptr;
      return;
    }
  }

 private:
  std::array<std::atomic<void*>, 4096> slots_{};
};

Blocks blocks;

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);

void* malloc(std::size_t bytes) {
  void* block = __libc_malloc(bytes);
  blocks.add(block);
  return block;
}
void* calloc(std::size_t count, std::size_t bytes) {
  void* block = __libc_calloc(count, bytes);
  blocks.add(block);
  return block;
}
void* realloc(void* old, std::size_t bytes) {
  blocks.remove(old);
  void* block = __libc_realloc(old, bytes);
  blocks.add(block);
  return block;
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  void* block = __libc_memalign(alignment, bytes);
  blocks.add(block);
  return block;
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  *block = memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
void free(void* block) {
  blocks.remove(block);
  __libc_free(block);
}

void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  void* pages =
      reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
  if (pages != MAP_FAILED) raise(mapped_peak, mapped += bytes);
  return pages;
}
int munmap(void* pages, std::size_t bytes) {
  mapped -= bytes;
  return static_cast<int>(syscall(SYS_munmap, pages, bytes));
}

}  // extern "C"

namespace spillway::testing {
namespace {

/// Activations much larger than graph records.
TrialConfig wide_gpt() {
  GptConfig model = tiny_gpt();
  model.max_position_embeddings = 64;
  model.hidden_size = 64;
  return tiny_trial("gpt", model);
}

/// Memory that oneDNN keeps for the compiled kernels of a net, whatever its sizes.
constexpr std::size_t kCompiled = 192 << 10;

TrialConfig bf16_gpt() {
  TrialConfig trial = wide_gpt();
  trial.train.dtype = trial.train.gradient_dtype = FloatType::bf16;
  return trial;
}

/// Computed by oneDNN, which allocates its own buffers.
TrialConfig conv_trial() {
  at::rand({64, 64}).matmul(at::rand({64, 64}));  // uses MKL before any session
  TrialConfig trial = net_trial(small_nets()[0]);
  trial.train.batch_size = 128;
  return trial;
}

TrialConfig counted_trial(const TrialConfig& trial = wide_gpt(),
                          const WrappedLayer::Before& also = {}) {
  const auto main = std::this_thread::get_id();
  return with_before(trial, [main, also](LayerContext& context) {
    is_device_thread = std::this_thread::get_id() != main;
    if (is_device_thread && also) also(context);
  });
}

struct Counted {
  RunResult result;
  std::size_t activations = 0, mapped = 0;
};

Counted count(const SessionConfig& config, const TrialConfig& trial) {
  const std::size_t mapped_before = ::mapped;
  Session session(config);
  session.submit(trial);
  ::live = ::peak = 0;
  ::mapped_peak = ::mapped.load();
  session.run();
  return {session.result(), ::peak, ::mapped_peak - mapped_before};
}

TEST(Allocation, CountsDeviceThreadsAsTheMeters) {
  for (const TrialConfig& trial :
       {counted_trial(), counted_trial(bf16_gpt()), counted_trial(conv_trial()),
        counted_trial(resnet_trial(small_resnet(), /*vn_size=*/32))}) {
    for (const Bytes budget : {kAmple, smallest_budget(trial)}) {
      const Counted counted = count(session_of(1, budget), trial);
      ASSERT_EQ(counted.result.trials[0].state, TrialState::done);
      const Bytes metered = counted.result.devices[0].activation_peak_bytes;
      EXPECT_GT(counted.activations, metered / 2) << trial.name;
      EXPECT_LT(counted.activations, metered + metered / 20 + kCompiled) << trial.name;
      expect_within_budgets(counted.result);
    }
  }
}

TEST(Allocation, CountsArenasAsBudgetsAndHomes) {
  const TrialConfig trial = counted_trial();
  const Bytes budget = smallest_budget(trial);
  const Counted counted = count(session_of(2, budget), trial);
  Bytes expected = 2 * round_up(budget, kPage) + round_up(counted.result.host_peak_bytes, kPage);
  for (const DeviceResult& device : counted.result.devices) {
    if (device.ops > 0) expected += kPage;  // for op results and losses
  }
  EXPECT_EQ(counted.mapped, expected);
}

/// Negative control: detects unmetered memory.
TEST(Allocation, DetectsUnmeteredMemory) {
  const TrialConfig trial = counted_trial(wide_gpt(), [](LayerContext&) {
    thread_local const std::vector<char> hidden(1 << 20);
    ASSERT_EQ(hidden[0], 0);
  });
  const Counted counted = count(session_of(1, kAmple), trial);
  EXPECT_GT(counted.activations, counted.result.devices[0].activation_peak_bytes + (1 << 19));
}

}  // namespace
}  // namespace spillway::testing
