#include "trainer/torch/counting_allocator.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/mutex.h"
#include "core/device/mapped_memory.h"
#include "core/os/host_memory.h"
#include "spillway/error.h"
#include "trainer/torch/torch_gpu.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {
namespace {

thread_local ActivationMeter* current_meter = nullptr;
thread_local ActivationMeter* current_gpu_meter = nullptr;
/// A failed charge inside MKL; exceptions cannot pass through MKL.
thread_local std::exception_ptr deferred;

/// The header of every block: the meter that was charged, and whether it owns the memory.
struct Header {
  ActivationMeter* meter;
  Bytes bytes;
  bool placed;
};
static_assert(sizeof(Header) <= kAlignment);

/// The host cannot write a header in front of a GPU's block.
struct GpuBlocks {
  struct Block {
    ActivationMeter* meter = nullptr;
    Bytes bytes = 0;
  };
  Mutex mutex;
  std::unordered_map<void*, Block> all SPILLWAY_GUARDED_BY(mutex);
};

GpuBlocks& gpu_blocks() {
  static GpuBlocks blocks;
  return blocks;
}

/// The live blocks that have a header. oneDNN and MKL free by address alone, also what they
/// allocated before this allocator came.
class OwnBlocks {
 public:
  void add(void* block) {
    Part& part = part_of(block);
    const MutexLock lock(part.mutex);
    part.blocks.insert(block);
  }
  bool contains(void* block) {
    Part& part = part_of(block);
    const MutexLock lock(part.mutex);
    return part.blocks.contains(block);
  }
  /// False if the block is not here.
  bool remove(void* block) {
    Part& part = part_of(block);
    const MutexLock lock(part.mutex);
    return part.blocks.erase(block) == 1;
  }

 private:
  struct Part {
    Mutex mutex;
    std::unordered_set<void*> blocks SPILLWAY_GUARDED_BY(mutex);
  };
  Part& part_of(void* block) {
    return parts_[reinterpret_cast<std::uintptr_t>(block) / kPage % parts_.size()];
  }
  std::array<Part, 64> parts_;  ///< so that threads rarely wait for each other
};

/// Never destroyed: other threads may free blocks while the process ends.
OwnBlocks& own_blocks() {
  static auto* const blocks = new OwnBlocks;
  return *blocks;
}

/// A block that `meter` (null: none) has been charged for; null if the system has no memory. Throws
/// OutOfMemory if the meter's memory is full.
void* new_block(Bytes bytes, ActivationMeter* meter) {
  void* base = meter ? meter->place(bytes + kAlignment) : nullptr;
  const bool placed = base != nullptr;
  if (!placed && posix_memalign(&base, kAlignment, bytes + kAlignment) != 0) return nullptr;
  *static_cast<Header*>(base) = {meter, bytes, placed};
  void* const block = static_cast<std::byte*>(base) + kAlignment;
  own_blocks().add(block);
  return block;
}

/// Charges what `take` allocates; charges nothing if that returns null or throws.
template <typename Take>
void* charged(ActivationMeter& meter, Bytes bytes, const Take& take) {
  meter.charge(bytes);
  void* block = nullptr;
  try {
    block = take();
  } catch (...) {
    meter.discharge(bytes);
    throw;
  }
  if (block == nullptr) meter.discharge(bytes);
  return block;
}

/// Like new_block(), and charges the meter.
void* charged_block(Bytes bytes, ActivationMeter* meter) {
  if (meter == nullptr) return new_block(bytes, nullptr);
  return charged(*meter, bytes, [&] { return new_block(bytes, meter); });
}

Header* header_of(void* block) {
  return reinterpret_cast<Header*>(static_cast<std::byte*>(block) - kAlignment);
}

/// False if the block has no header.
bool delete_own(void* block) {
  if (block == nullptr) return true;
  if (!own_blocks().remove(block)) return false;
  Header* header = header_of(block);
  const auto [meter, bytes, placed] = *header;
  if (placed) {
    meter->remove(header, bytes + kAlignment);
  } else {
    free(header);
  }
  if (meter) meter->discharge(bytes);
  return true;
}

/// LibTorch's CPU allocator before ours.
c10::Allocator* previous_allocator = nullptr;

void delete_block(void* block) {
  if (!delete_own(block)) previous_allocator->raw_deallocate(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (deferred) std::rethrow_exception(std::exchange(deferred, nullptr));
    if (current_meter == nullptr) return previous_allocator->allocate(bytes);
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &delete_block, cpu};
    void* block = charged_block(bytes, current_meter);
    if (block == nullptr) {
      throw SystemOutOfMemory(Tier::host, bytes, host_memory().available, "LibTorch");
    }
    return {block, block, &delete_block, cpu};
  }

  /// oneDNN allocates and frees its buffers without a DataPtr.
  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

void* mkl_malloc(std::size_t bytes) {
  // Small blocks are records that MKL keeps per thread.
  ActivationMeter* meter = bytes < kPage ? nullptr : current_meter;
  try {
    return charged_block(bytes, meter);
  } catch (...) {
    deferred = std::current_exception();
    return new_block(bytes, nullptr);
  }
}

void* mkl_calloc(std::size_t count, std::size_t bytes) {
  void* block = mkl_malloc(count * bytes);
  return block ? std::memset(block, 0, count * bytes) : nullptr;
}

void mkl_free(void* block) {
  if (!delete_own(block)) free(block);
}

void* mkl_realloc(void* old, std::size_t bytes) {
  if (old && !own_blocks().contains(old)) return realloc(old, bytes);
  void* block = mkl_malloc(bytes);
  if (old && block) std::memcpy(block, old, std::min(bytes, header_of(old)->bytes));
  if (block) mkl_free(old);
  return block;
}

template <typename Function>
void redirect(const char* symbol, Function function) {
  if (void* hook = dlsym(RTLD_DEFAULT, symbol)) *static_cast<Function*>(hook) = function;
}

/// The buffers into which MKL packs matrices count as activations. MKL keeps them for the next call
/// unless told not to. A LibTorch without MKL lacks these symbols.
/// Source: oneMKL developer guide, "Redefining Memory Functions".
void count_mkl_buffers() {
  redirect("i_malloc", &mkl_malloc);
  redirect("i_calloc", &mkl_calloc);
  redirect("i_realloc", &mkl_realloc);
  redirect("i_free", &mkl_free);
  if (void* function = dlsym(RTLD_DEFAULT, "mkl_serv_disable_fast_mm")) {
    reinterpret_cast<int (*)()>(function)();
  }
}

/// Runs when the program is loaded: MKL reads its hooks in its first call, which may be the user's.
[[maybe_unused]] const bool counts_mkl_buffers = (count_mkl_buffers(), true);

Mutex kept_mutex;
int num_kept SPILLWAY_GUARDED_BY(kept_mutex) = 0;

/// By default glibc maps many large blocks each time, and the kernel clears every page. `pad`: a
/// thread's arena gives an empty heap back only if the heap before it has this much room. A heap
/// has 64 MiB, so with more than that all heaps stay. They also grow by `pad` at once, but pages
/// that nobody has touched need no memory. Source: mallopt(3), and heap_trim() of glibc.
void set_thresholds(int map_from, int trim_from, int pad) {
  mallopt(M_MMAP_THRESHOLD, map_from);
  mallopt(M_TRIM_THRESHOLD, trim_from);
  mallopt(M_TOP_PAD, pad);
}

/// The first products of a process allocate more through MKL's hooks than later ones; here no meter
/// is charged for them.
void multiply_once() {
  const OneTorchThread one_thread;
  for (const std::int64_t size : {16, 256}) {
    const at::Tensor a = at::ones({2, size, size});
    at::bmm(a, a);
    at::mm(a[0], a[1]);
  }
}

}  // namespace

void initialize_torch() {
  static std::once_flag once;
  std::call_once(once, [] {
    offer_torch_gpu();
    previous_allocator = c10::GetCPUAllocator();
    static CountingAllocator allocator;
    c10::SetCPUAllocator(&allocator, /*priority=*/100);
    multiply_once();
  });
}

KeptMemory::KeptMemory() {
  constexpr int kMoreThanAHeap = 65 << 20;
  const MutexLock lock(kept_mutex);
  if (num_kept++ == 0) {
    set_thresholds(32 << 20, std::numeric_limits<int>::max(), kMoreThanAHeap);  // the maxima
  }
}

KeptMemory::~KeptMemory() {
  const MutexLock lock(kept_mutex);
  if (--num_kept > 0) return;
  set_thresholds(128 << 10, 128 << 10, 128 << 10);  // glibc's own
  malloc_trim(0);
}

MeterScope::MeterScope(ActivationMeter& meter, bool of_gpu)
    : previous_(std::exchange(current_meter, of_gpu ? nullptr : &meter)),
      previous_of_gpu_(std::exchange(current_gpu_meter, of_gpu ? &meter : nullptr)) {
  deferred = nullptr;
}

MeterScope::~MeterScope() {
  current_meter = previous_;
  current_gpu_meter = previous_of_gpu_;
}

void* place_on_gpu(Bytes bytes) {
  ActivationMeter* const meter = current_gpu_meter;
  if (meter == nullptr) return nullptr;
  return charged(*meter, bytes, [&] {
    void* const block = meter->place(bytes);
    GpuBlocks& blocks = gpu_blocks();
    const MutexLock lock(blocks.mutex);
    blocks.all[block] = {meter, bytes};
    return block;
  });
}

bool remove_from_gpu(void* block) {
  GpuBlocks& blocks = gpu_blocks();
  GpuBlocks::Block removed;
  {
    const MutexLock lock(blocks.mutex);
    const auto found = blocks.all.find(block);
    if (found == blocks.all.end()) return false;
    removed = found->second;
    blocks.all.erase(found);
  }
  removed.meter->remove(block, removed.bytes);
  removed.meter->discharge(removed.bytes);
  return true;
}

}  // namespace spillway
