#pragma once

#include <memory>
#include <vector>

#include "core/base/fold.h"
#include "core/device/mapped_memory.h"
#include "scheduler/plan/cut.h"
#include "scheduler/plan/layout.h"
#include "spillway/trial_config.h"
#include "trainer/compute/optimizer.h"
#include "trainer/compute/range_runner.h"

namespace spillway::experiments {

/// Cost of a trial without copies or scheduling: all state stays in memory, and loops on the
/// calling thread take virtual nodes through the shards. Forward keeps the boundaries, backward
/// recomputes a shard at a time; gradients are folded, clipped and applied as in a Session, so all
/// losses have its bits. One lane; every layer but the first reads the output of the previous one.
class ResidentTrainer {
 public:
  enum class Order { vn_by_vn, shard_by_shard };

  /// `trial.train.reduction_groups` is set.
  ResidentTrainer(const TrialConfig& trial, const std::vector<LayerRange>& shards, Order order);

  /// Trains max_steps steps; returns the times of their commits, in seconds.
  std::vector<double> run();
  const std::vector<double>& losses() const { return mean_losses_; }

 private:
  /// One virtual node through one shard.
  struct Op {
    int shard, vn;
    bool backward;
  };
  void add_ops(Order order);
  void place_state();
  void place_edges();
  void load();
  void compute(const Op& op);
  void fold_gradient(int vn, int layer, int param, const float* value);
  void merge_sums(int shard, int vn);
  void reduce();
  double commit();  ///< returns the scale of the gradients
  void update(double gradient_scale);
  float* take(Bytes bytes);
  const float* gradient_of(int param) const {
    return std::get<const float*>(params_[at(param)].gradient);
  }
  float* sum_of(int slot, int layer) {
    return sums_ + static_cast<std::size_t>(slot) * slot_size_ + sum_offsets_[at(layer)];
  }

  const TrialConfig trial_;
  const std::unique_ptr<Model> model_;
  const std::vector<LayerRange> shards_;
  const Cut cut_;
  const FoldPlan fold_;
  std::vector<Op> ops_;
  MappedMemory memory_;
  Bytes used_ = 0;
  std::vector<UpdatedParam> params_;  ///< gradient: of the last layer that uses it
  float* sums_ = nullptr;             ///< slots of the fold, layers in each
  std::size_t slot_size_ = 0;
  std::vector<std::size_t> sum_offsets_;               ///< by layer, in a slot
  std::vector<std::vector<std::size_t>> use_offsets_;  ///< by layer and its parameters, in its sum
  std::vector<RangeRunner::EdgeMemory> edges_, gradients_;  ///< by virtual node
  std::vector<WeightedSum> losses_;                         ///< by virtual node
  std::vector<double> squared_norms_;                       ///< by parameter
  std::vector<double> mean_losses_;
  std::int64_t step_ = 0;
};

}  // namespace spillway::experiments
