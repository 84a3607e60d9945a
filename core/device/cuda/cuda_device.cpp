#include <stop_token>

#include "core/device/activation_pool.h"
#include "core/device/cuda/cuda_health.h"
#include "core/device/cuda/cuda_queue.h"
#include "core/device/cuda/gpu.h"
#include "core/device/cuda/gpu_arena.h"
#include "core/device/cuda/pinned_memory.h"
#include "core/device/device.h"
#include "core/device/fault_switch.h"

namespace spillway {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(const std::string& name, int gpu, Bytes budget, const MemorySplit& split)
      : gpu_(gpu),
        split_(split),
        budget_(std::make_shared<MemoryBudget>(name, budget)),
        arena_(std::make_shared<GpuArena>(gpu, budget_)),
        activations_(make_activation_meter(name, split.dedicated_activations()
                                                     ? arena_->allocate(split.activations(budget))
                                                     : nullptr)),
        health_(name),
        gate_(name, {}, abandoned_.get_token()),
        compute_(name + " compute", gpu, CudaQueue::Waits::stream, health_, token()),
        host_to_device_(name + " h2d", gpu, CudaQueue::Waits::feeder, health_, token()),
        device_to_host_(name + " d2h", gpu, CudaQueue::Waits::feeder, health_, token()),
        from_devices_(name + " d2d", gpu, CudaQueue::Waits::feeder, health_, token()) {}

  const std::string& name() const override { return budget_->owner(); }
  const std::string& kind() const override { return kind_; }
  std::string exact_kind() const override { return kind_ + " " + model_; }
  Bytes budget() const override { return budget_->limit(); }
  const MemorySplit& split() const override { return split_; }
  int gpu() const override { return gpu_; }
  double slowdown() const override { return 1; }
  Bytes link_bytes_per_s() const override { return 0; }

  Queue& compute() override { return compute_; }
  Queue& host_to_device() override { return host_to_device_; }
  Queue& device_to_host() override { return device_to_host_; }
  Queue& from_devices() override { return from_devices_; }

  std::unique_ptr<DeviceMemory> allocate(Bytes bytes) override { return arena_->allocate(bytes); }
  /// If the GPU is lost, state in host memory is unaffected.
  std::unique_ptr<DeviceMemory> allocate_host(Bytes bytes) override {
    try {
      return std::make_unique<PinnedMemory>(gpu_, bytes, name());
    } catch (const CudaError& error) {
      health_.note(error.code);
      return std::make_unique<MappedMemory>(bytes, Tier::host, name());
    }
  }

  ActivationMeter& activations() override { return *activations_; }

  void begin_op() override {
    gate_.begin_op();
    check();
  }
  void check() override { health_.require_good(); }
  void abandon() override {
    abandoned_.request_stop();
    end_on_gpu(gpu_, [this] {
      for (CudaQueue* queue : {&host_to_device_, &device_to_host_, &from_devices_}) {
        queue->finish_copies();
      }
    });
  }

 private:
  std::stop_token token() const { return abandoned_.get_token(); }

  const std::string kind_ = "cuda";
  const int gpu_;
  const std::string model_ = gpu_model(gpu_);
  const MemorySplit split_;
  const std::shared_ptr<MemoryBudget> budget_;
  const std::shared_ptr<GpuArena> arena_;  // shared: with ranges that outlive the device
  const std::unique_ptr<ActivationMeter> activations_;
  std::stop_source abandoned_;
  CudaHealth health_;
  FaultSwitch gate_;  // of the compute queue's thread
  // Declared last: pending work may use the members above.
  CudaQueue compute_, host_to_device_, device_to_host_, from_devices_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const std::string& name, int gpu, Bytes budget,
                                         const MemorySplit& split) {
  require_gpu(gpu, budget);
  connect_gpu(gpu);
  return std::make_unique<CudaDevice>(name, gpu, budget, split);
}

}  // namespace spillway
