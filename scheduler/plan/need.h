#pragma once

#include <vector>

#include "core/device/memory_split.h"
#include "core/spec/profile.h"
#include "scheduler/plan/cut.h"

namespace spillway {

struct JobShape;

/// The device memory that a unit needs, in bytes; pieces are rounded up to kAlignment.
struct UnitNeed {
  Bytes weights = 0, sums = 0;
  Bytes workspace = 0;  ///< activations at their peak while one virtual node goes through
  Bytes op_area = 0;    ///< boundaries, their gradients and the batch, of one virtual node
  Bytes planned() const { return weights + sums + op_area; }
  /// The device memory that holds it.
  Bytes total(const MemorySplit& split = {}) const { return split.needed(planned(), workspace); }
};

/// Whether a layer takes part in backward: it has the loss, sums, or an edge with a gradient. The
/// others only run forward, such as frozen layers before the first one that is trained.
bool has_backward(const ModelSpec& model, const LayerSpec& layer);

/// The most slots of gradient sums in any cell.
int sum_slots(const JobShape& shape, const Strategy& strategy);

/// Precomputed values for the needs of all ranges of a model. Model and profile outlive it.
struct NeedTable {
  NeedTable(const ModelSpec& spec, const Profile& costs, const JobShape& shape);
  NeedTable(const ModelSpec& spec, const Profile& costs, const JobShape& shape,
            const Strategy& strategy);
  NeedTable(const ModelSpec& spec, const Profile& costs, const MemorySplit& memory, int slots);

  const ModelSpec& model;
  const Profile& profile;
  const MemorySplit split;
  std::vector<Readers> readers;               // by edge
  std::vector<Bytes> edge_bytes;              // by edge
  std::vector<Bytes> own_weights;             // by layer; tied weights count by themselves
  std::vector<Bytes> sums, packed_sums;       // by layer; see SumPlaces
  std::vector<Bytes> tied_bytes;              // by parameter; 0: has one use
  std::vector<std::vector<int>> tied_params;  // by layer: those with several uses
  std::vector<bool> has_backward;             // by layer
  const int most_slots;                       // see sum_slots()
};

/// The need of a range of layers, updated as the range grows at its end. It counts every gradient
/// of an edge that is also read after the range, and terms of pieces outside the range one by one:
/// an upper bound, exact for chains.
class RangeNeed {
 public:
  RangeNeed(const NeedTable& table, int begin) : table_(table), begin_(begin), end_(begin) {}
  /// Adds the next layer.
  void grow();

  int end() const { return end_; }
  Bytes weights() const { return weights_; }
  /// Whether any of its layers takes part in backward.
  bool has_backward() const { return has_backward_; }
  /// A lower bound on the need of any longer range with the same begin.
  Bytes least_of_longer() const;
  bool reads_batch() const { return batch_bytes_ > 0; }
  UnitNeed forward() const;   ///< of evaluation too
  UnitNeed backward() const;  ///< recomputation included; that of forward if there is none
  /// What the graph of a forward takes beside the workspace of forward(), during the op and until
  /// its backward. 0: no graph outlives an op.
  Bytes graph() const;
  /// The larger of the two.
  UnitNeed largest() const;

 private:
  void grow_workspaces();
  void grow_boundaries();
  bool has_gradient_of(int edge) const;
  Bytes folding_bytes(int leaves, int edge) const;
  Bytes area_of_in(int edge) const;
  Bytes area_of_out(int edge) const;
  Bytes area_of_in_gradient(int edge) const;
  int parts_of_out_gradient(int edge) const;

  const NeedTable& table_;
  int begin_, end_;
  std::vector<int> in_, out_;  // edges: inputs; live outputs
  std::vector<int> tied_;      // parameters
  bool has_backward_ = false;
  Bytes weights_ = 0, sums_ = 0, batch_bytes_ = 0;
  Bytes forward_peak_ = 0, graph_peak_ = 0, backward_peak_ = 0, retained_ = 0;
  bool keeps_graph_ = true;
  Bytes standing_in_ = 0;  // gradients of inputs with readers after the first one here
  Bytes folding_ = 0;      // terms of edges that pieces here make, until they are read
};

/// The need of one range.
RangeNeed range_need(const NeedTable& table, LayerRange layers);
UnitNeed unit_need(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                   LayerRange layers);

}  // namespace spillway
