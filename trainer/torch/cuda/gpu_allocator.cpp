#include "trainer/torch/cuda/gpu_allocator.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "spillway/error.h"
#include "trainer/torch/counting_allocator.h"

namespace spillway {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex, c10::MempoolId_t;
using caching::CUDAAllocator;

thread_local bool is_own_thread = false;

/// Blocks that threads of ours got from CUDA.
class OwnBlocksOfCuda {
 public:
  void* allocate(std::size_t bytes) {
    void* block = nullptr;
    if (cudaMalloc(&block, bytes) != cudaSuccess) {
      cudaGetLastError();
      throw OutOfMemory(Tier::device, bytes, 0, "LibTorch's workspaces on a GPU");
    }
    const MutexLock lock(mutex_);
    blocks_.insert(block);
    return block;
  }
  /// False if the block is not one of these.
  bool free(void* block) {
    {
      const MutexLock lock(mutex_);
      if (blocks_.erase(block) == 0) return false;
    }
    cudaFree(block);
    return true;
  }

 private:
  Mutex mutex_;
  std::unordered_set<void*> blocks_ SPILLWAY_GUARDED_BY(mutex_);
};

/// Never destroyed: LibTorch frees its workspaces while the process ends.
OwnBlocksOfCuda& blocks_of_cuda() {
  static auto* const blocks = new OwnBlocksOfCuda;
  return *blocks;
}

/// Null if the calling thread is not one of ours, or for no bytes.
void* allocate_own(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (void* block = place_on_gpu(bytes)) return block;
  return is_own_thread ? blocks_of_cuda().allocate(bytes) : nullptr;
}

/// False if no thread of ours allocated the block. In stream order, so the next owner computes
/// after the previous one.
bool free_own(void* block) { return remove_from_gpu(block) || blocks_of_cuda().free(block); }

class GpuAllocator final : public CUDAAllocator {
 public:
  explicit GpuAllocator(CUDAAllocator& inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    void* const block = allocate_own(bytes);
    if (block == nullptr) return inner_.allocate(bytes);
    const c10::Device here(c10::DeviceType::CUDA, c10::cuda::current_device());
    return {block, block, [](void* freed) { free_own(freed); }, here};
  }
  void* raw_alloc(std::size_t bytes) override {
    void* const block = allocate_own(bytes);
    return block ? block : inner_.raw_alloc(bytes);
  }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    void* const block = allocate_own(bytes);
    return block ? block : inner_.raw_alloc_with_stream(bytes, stream);
  }
  void raw_delete(void* block) override {
    if (!free_own(block)) inner_.raw_delete(block);
  }

  // The rest is LibTorch's.
  c10::DeleterFnPtr raw_deleter() const override { return inner_.raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_.copy_data(to, from, bytes);
  }
  bool initialized() override { return inner_.initialized(); }
  void init(int num_devices) override { inner_.init(num_devices); }
  double getMemoryFraction(DeviceIndex device) override { return inner_.getMemoryFraction(device); }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    inner_.setMemoryFraction(fraction, device);
  }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override {
    return inner_.getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { inner_.enable(value); }
  bool isEnabled() const override { return inner_.isEnabled(); }
  void emptyCache(MempoolId_t pool) override { inner_.emptyCache(pool); }
  void cacheInfo(DeviceIndex device, std::size_t* largest) override {
    inner_.cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* block, std::size_t* bytes) override {
    return inner_.getBaseAllocation(block, bytes);
  }
  using CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& block, c10::cuda::CUDAStream stream) override {
    inner_.recordStream(block, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device) override {
    return inner_.getDeviceStats(device);
  }
  void resetAccumulatedStats(DeviceIndex device) override { inner_.resetAccumulatedStats(device); }
  void resetPeakStats(DeviceIndex device) override { inner_.resetPeakStats(device); }
  caching::SnapshotInfo snapshot(MempoolId_t pool, bool include_traces) override {
    return inner_.snapshot(pool, include_traces);
  }
  void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    inner_.beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(DeviceIndex device, MempoolId_t pool) override {
    inner_.endAllocateToPool(device, pool);
  }
  void releasePool(DeviceIndex device, MempoolId_t pool) override {
    inner_.releasePool(device, pool);
  }
  int getPoolUseCount(DeviceIndex device, MempoolId_t pool) override {
    return inner_.getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    inner_.createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool use) override {
    inner_.setUseOnOOM(device, pool, use);
  }
  void setNoSplit(DeviceIndex device, MempoolId_t pool) override {
    inner_.setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return inner_.checkPoolLiveAllocations(device, pool, expected);
  }
  caching::ShareableHandle shareIpcHandle(void* block) override {
    return inner_.shareIpcHandle(block);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return inner_.getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override { return inner_.isHistoryEnabled(); }
  void recordHistory(bool enabled, caching::CreateContextFn recorder, std::size_t max_entries,
                     caching::RecordContext when, bool clear,
                     const std::vector<std::string>& skipped) override {
    inner_.recordHistory(enabled, recorder, max_entries, when, clear, skipped);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& values) override {
    inner_.recordAnnotation(values);
  }
  void pushCompileContext(std::string& context) override { inner_.pushCompileContext(context); }
  void popCompileContext() override { inner_.popCompileContext(); }
  void setUserMetadata(const std::string& text) override { inner_.setUserMetadata(text); }
  std::string getUserMetadata() override { return inner_.getUserMetadata(); }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    inner_.attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override {
    inner_.attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(DeviceIndex device, DeviceIndex other) override {
    inner_.enablePeerAccess(device, other);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t bytes, cudaStream_t stream, bool peers) override {
    return inner_.memcpyAsync(to, to_device, from, from_device, bytes, stream, peers);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(DeviceIndex device,
                                                              MempoolId_t pool) override {
    return inner_.getCheckpointState(device, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(
      DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) override {
    return inner_.setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return inner_.name(); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(DeviceIndex device) override {
    return inner_.getMemoryInfo(device);
  }

 private:
  CUDAAllocator& inner_;
};

}  // namespace

void install_gpu_allocator() {
  // Never destroyed: tensors are freed while the process ends.
  static auto* const allocator = new GpuAllocator(*caching::get());
  caching::allocator.store(allocator);
}

void allocate_as_own_gpu_thread() { is_own_thread = true; }

}  // namespace spillway
