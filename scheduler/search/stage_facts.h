#pragma once

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "scheduler/plan/layout.h"
#include "scheduler/plan/need.h"

namespace spillway {

/// What the units of a stage need and cost.
struct StageFacts {
  bool reads_batch = false, has_backward = false;
  Bytes needed_budget = 0;  ///< of a device
  Bytes forward_workspace = 0, backward_workspace = 0;
  Bytes graph = 0;                                    ///< see RangeNeed::graph()
  double forward_s = 0, backward_s = 0, merge_s = 0;  ///< of one virtual node
  Bytes sums = 0, packed_sums = 0;                    ///< in one slot; see SumPlaces
  std::vector<int> weights;                           ///< buffers
};

/// The facts about the stages of one model that strategies ask for, each computed once. `slots`: of
/// gradient sums, see sum_slots().
class StageTable {
 public:
  /// Model and profile outlive it.
  StageTable(const ModelSpec& model, const Profile& profile, const JobShape& shape);

  const StageFacts& facts(LayerRange layers, int slots);
  /// The layers of the stages into which divide_to_fit() divides one.
  const std::vector<LayerRange>& divided(LayerRange stage, int slots, Bytes budget);
  /// See smallest_budget() of stages.
  Bytes smallest_budget(int slots);
  const FoldPlan& fold(GroupRange cell);
  /// By layer, if the stage of the layer has `cells` cells, which send `partials` subtrees home.
  const std::vector<HostOpSpec>& reduces(std::size_t cells, std::size_t partials);

  const ModelSpec& model() const { return model_; }
  const JobShape& shape() const { return shape_; }
  /// By layer: parameters that other layers use, too.
  const std::vector<std::vector<int>>& tied_params() const { return tied_params_; }
  /// The plan with one stage. Every strategy has the same weights buffers and host updates.
  const JobPlan& whole() const { return whole_; }

 private:
  const NeedTable& needs(int slots);

  const ModelSpec& model_;
  const Profile& profile_;
  const JobShape shape_;
  const JobPlan whole_;
  std::vector<std::vector<int>> tied_params_;                                  // by layer
  std::map<int, NeedTable> needs_;                                             // by slots
  std::map<int, Bytes> smallest_;                                              // by slots
  std::map<std::tuple<int, int, int>, StageFacts> facts_;                      // slots, layers
  std::map<std::tuple<Bytes, int, int, int>, std::vector<LayerRange>> parts_;  // budget, ...
  std::map<std::pair<int, int>, FoldPlan> folds_;                              // groups
  std::map<std::pair<bool, std::size_t>, std::vector<HostOpSpec>> reduces_;    // one cell, partials
};

}  // namespace spillway
