#include "core/device/cuda/gpu_arena.h"

#include <algorithm>
#include <utility>

#include "core/device/cuda/gpu.h"

namespace spillway {
namespace {

/// Ranges are whole pages, at least one.
Bytes pages_of(Bytes bytes) { return round_up(std::max<Bytes>(bytes, 1), kPage); }

/// CUDA aligns to 256 bytes only.
void* take(int gpu, Bytes bytes) {
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, bytes + kPage);
  if (code == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw budget_above_pieces(gpu, bytes, free);
  }
  require(code, "cudaMalloc");
  return memory;
}

}  // namespace

class GpuArena::Range final : public DeviceMemory {
 public:
  Range(std::shared_ptr<GpuArena> arena, Bytes bytes)
      : arena_(std::move(arena)),
        share_(arena_->budget_, bytes),
        size_(bytes),
        offset_(arena_->place(bytes)) {}
  ~Range() override { arena_->give_back(offset_, size_); }
  std::byte* data() const override { return arena_->data_ + offset_; }
  Bytes size() const override { return size_; }

 private:
  const std::shared_ptr<GpuArena> arena_;  // shared: a device and its memory end in any order
  const BudgetShare share_;
  const Bytes size_, offset_;
};

GpuArena::GpuArena(int gpu, std::shared_ptr<MemoryBudget> budget)
    : gpu_(gpu), budget_(std::move(budget)), ranges_(pages_of(budget_->limit())) {
  const Bytes bytes = ranges_.capacity();
  on_gpu(gpu_, [&] { memory_ = take(gpu_, bytes); });
  data_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<Bytes>(memory_), kPage));
}

GpuArena::~GpuArena() {
  end_on_gpu(gpu_, [this] { cudaFree(memory_); });
}

std::unique_ptr<DeviceMemory> GpuArena::allocate(Bytes bytes) {
  return std::make_unique<Range>(shared_from_this(), bytes);
}

Bytes GpuArena::place(Bytes bytes) {
  const MutexLock lock(mutex_);
  const auto offset = ranges_.allocate(pages_of(bytes));
  if (!offset) throw OutOfMemory(Tier::device, bytes, ranges_.largest_hole(), budget_->owner());
  return *offset;
}

void GpuArena::give_back(Bytes offset, Bytes bytes) noexcept {
  const MutexLock lock(mutex_);
  ranges_.free(offset, pages_of(bytes));
}

}  // namespace spillway
