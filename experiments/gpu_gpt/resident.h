#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/fold.h"
#include "core/device/device.h"
#include "scheduler/plan/cut.h"
#include "spillway/trial_config.h"
#include "trainer/compute/range_runner.h"
#include "trainer/torch/kernel_flags.h"

namespace spillway::experiments {

/// Cost of a trial without copies or scheduling: all state stays on the device, as in a trainer
/// that does not spill. Weights have the type of their layers; masters, gradients and moments are
/// fp32; LibTorch does clipping and AdamW. Each virtual node goes forward through all shards, then
/// back, and every shard but the last is recomputed, by the code that a session's ops run. Only the
/// batch is copied.
class Resident {
 public:
  /// On GPU 0, or on a thread if `kind` is cpu. `activations`: of an op, in bytes. One reduction
  /// group. Throws if memory is too small.
  Resident(TrialConfig trial, const std::vector<LayerRange>& shards, DeviceKind kind,
           Bytes activations);
  ~Resident();
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  /// Trains max_steps steps, at least 3. Returns the seconds per step without the first two.
  double run();
  /// The mean loss of the last step.
  double loss() const { return loss_; }

 private:
  struct Param {
    at::Tensor weight, master, gradient, mean, square, steps;
    bool is_fresh = true;  // without a gradient in this step
  };
  void place_state();
  void load(int vn);
  double take_through(int vn, double* loss);
  double run_shard(int shard, const RangeRunner& runner, double* loss);
  void add_gradient(int layer, int param, const std::byte* term);
  void update(double weight);
  void step();

  const TrialConfig trial_;
  const std::unique_ptr<Model> model_;
  const std::vector<LayerRange> shards_;
  const Cut cut_;
  const ReproducibleGpuKernels gpu_kernels_;
  const std::unique_ptr<Device> device_;                // for edges and activations
  const std::unique_ptr<DeviceMemory> edge_memory_;     // of one virtual node
  const std::unique_ptr<DeviceMemory> batch_, losses_;  // host memory, by virtual node
  RangeRunner::EdgeMemory edges_, edge_gradients_;      // in edge_memory_
  std::vector<Param> params_;
  std::int64_t step_ = 0;
  double loss_ = 0;
};

}  // namespace spillway::experiments
