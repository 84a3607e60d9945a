#pragma once

#include <map>

#include "core/ids.h"
#include "scheduler/lower.h"

namespace spillway {

/// A lane's stack of gradient sums: which slot every virtual node's gradient goes to, and which
/// slots hold finished subtrees at the end. The stack is at most log2(groups) + 2 deep for a lane
/// that starts at a subtree's edge; finished subtrees keep their slot until the unit ends.
struct FoldPlan {
  int num_slots = 0;
  std::vector<FoldStep> steps;             ///< by virtual node of the lane
  std::vector<std::pair<int, int>> roots;  ///< (first group, slot), ascending
};
FoldPlan plan_fold(GroupRange lane, int groups, int vns_per_group);

/// Assigns homes and numbers buffers while lower() asks for them.
class LayoutBuilder {
 public:
  LayoutBuilder(const ModelSpec& model, const JobShape& shape, std::vector<GroupRange> lanes);

  /// Buffers of the sums of `lane`, slot-major, over the layers of `range` with gradients.
  std::vector<int> sums(int lane, LayerRange range);
  /// Those of them that hold finished subtrees when the unit ends.
  std::vector<int> drains(int lane, LayerRange range);
  /// The boundary before layer `cut` of virtual node `vn`, and its gradient (same home: the
  /// gradient is made by the op that reads the boundary last).
  int boundary(int cut, int vn);
  int gradient(int cut, int vn);
  /// As boundary(), for evaluation: neighbouring cuts have different parity, others share homes.
  int eval_boundary(int cut, int parity, int vn);

  const FoldPlan& fold(int lane) const { return folds_[at(lane)]; }
  const Layout& layout() const { return layout_; }
  Layout finish() &&;

 private:
  void place_weights();
  void place_sums();
  void place_batches();
  int add_buffer(BufferKind kind, Bytes bytes, Bytes home);
  Bytes reserve(Bytes bytes, Bytes alignment);

  const ModelSpec& model_;
  JobShape shape_;
  std::vector<GroupRange> lanes_;
  std::vector<FoldPlan> folds_;
  std::vector<std::vector<std::vector<int>>> sum_buffers_;  // lane, slot, layer (-1: none)
  std::map<std::pair<int, int>, int> boundaries_, gradients_, eval_boundaries_;
  std::map<std::pair<int, int>, Bytes> eval_homes_;  // (parity, vn)
  Layout layout_;
};

/// The edge that crosses from layer `cut` - 1 to layer `cut`.
const EdgeSpec& boundary_edge(const ModelSpec& model, int cut);
/// The batch edge: the only edge without a producer.
const EdgeSpec& batch_edge(const ModelSpec& model);

}  // namespace spillway
