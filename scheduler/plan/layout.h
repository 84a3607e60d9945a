#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "scheduler/plan/cut.h"
#include "scheduler/plan/host_parts.h"
#include "scheduler/plan/lower.h"
#include "scheduler/plan/tasks.h"
#include "spillway/ids.h"

namespace spillway {

/// The number of parts into which host threads can divide an op over `bytes` bytes.
int host_grains(Bytes bytes);
/// The op that finishes the sum of a layer by `merges` additions, without what it waits for.
HostOpSpec reduce_of(const ModelSpec& model, const Profile& profile, int layer,
                     const Layout::LayerPlace& place, std::size_t merges);

/// Assigns homes and numbers buffers while lower() asks for them.
class LayoutBuilder {
 public:
  LayoutBuilder(const ModelSpec& model, const JobShape& shape, const Strategy& strategy,
                const Cut& cut);

  /// Buffers of the sums of a cell, slot-major, over the layers of its stage with gradients.
  std::vector<int> sums(int stage, int cell) const;
  /// The buffers among them that hold finished subtrees when its last unit ends.
  std::vector<int> drains(int stage, int cell) const;
  /// A part of a boundary of virtual node `vn`.
  int boundary(EdgePart part, int vn);
  /// A part of its gradient, over the readers from shard `shard` on; over that shard alone if
  /// pieces read it. The first reading shard's gradient shares the boundary's home: its op is the
  /// last to read the boundary.
  int gradient(EdgePart part, int shard, int vn);
  /// The graph of a forward op, of `bytes`.
  int graph(int stage, int vn, Bytes bytes);
  int batch(int vn) const { return layout_.batch[at(vn - layout_.first_vn)]; }
  int eval_batch(int vn) const { return layout_.eval_batch[at(vn - layout_.first_eval_vn)]; }
  /// As boundary(), for evaluation: edges that are never live together share homes.
  int eval_boundary(EdgePart part, int vn);

  const FoldPlan& fold(int stage, int cell) const {
    const GroupRange groups = strategy_.stages[at(stage)].cells[at(cell)].groups;
    return folds_.at({groups.begin, groups.end});
  }
  /// The first groups of the subtrees whose sums meet at home, ascending: those that cells of the
  /// stage send home, and those of the groups of other hosts.
  const std::vector<int>& partials(int stage) const { return partials_[at(stage)]; }
  /// The position of one of them.
  int position_of_partial(int stage, int first_group) const;
  const Layout& layout() const { return layout_; }
  const HostParts& host_parts() const { return parts_; }
  Layout finish() &&;

 private:
  void divide_among_hosts();
  void place_weights();
  void place_moments();
  void place_block(const std::vector<int>& params, std::vector<int>& copied);
  Bytes share(const std::vector<int>& params, Bytes bytes);
  void place_sums();
  void place_partials(const std::vector<Bytes>& in_plane);
  void place_whole_sums();
  void add_sum_buffers();
  void add_sum_buffers(int stage, int cell, int slot);
  int add_sum(int layer, Bytes home, bool is_kept);
  void place_batches();
  void place_numbers();
  void place_norms();
  int add_buffer(BufferKind kind, Bytes bytes, Bytes home);
  int add_edge(BufferKind kind, EdgePart part, Bytes home);
  Bytes gradient_home(EdgePart part, int shard, int vn);
  Bytes eval_home(EdgePart part, int vn);
  Bytes reserve(Bytes bytes, Bytes alignment);

  const ModelSpec& model_;
  const std::vector<int> uses_;  // by parameter
  JobShape shape_;
  const Strategy& strategy_;
  const Cut& cut_;
  const std::vector<std::vector<int>> blocks_;
  const HostParts parts_;
  const bool keeps_order_;  // each virtual node goes forward, then backward, stage by stage
  std::optional<BoundarySlots> eval_slots_;                               // if it keeps that order
  std::map<std::pair<int, int>, FoldPlan> folds_;                         // by first, last group
  std::vector<std::vector<int>> partials_;                                // by stage
  std::map<std::pair<EdgePart, int>, int> boundaries_, eval_boundaries_;  // (part, vn)
  std::map<std::tuple<EdgePart, int, int>, int> gradients_;               // (part, shard, vn)
  std::map<std::pair<int, int>, int> graphs_;                             // (stage, vn)
  std::map<std::pair<int, int>, Bytes> eval_homes_;                       // (slot, vn)
  Layout layout_;
};

}  // namespace spillway
