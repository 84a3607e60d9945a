#pragma once

#include <vector>

#include "scheduler/plan/layout.h"
#include "scheduler/plan/lower.h"

namespace spillway {

/// Bytes [home, home + bytes) of a home, or of something in it.
struct HomeRange {
  Bytes home = 0, bytes = 0;
};

/// What the hosts that train a job together send each other. Every host derives the same transfers
/// from its plan, whatever its lanes: a host sends the finished subtrees of its groups.
///
/// The sum of a layer is divided into a part for each host that takes part, as in a reduce-scatter
/// and an all-gather ("Optimization of Collective Communication Operations in MPICH", Thakur et
/// al., 2005), but a part's owner adds the subtrees in the order of the tree (core/base/fold.h).
class HostExchange {
 public:
  /// The shape has the hosts; both outlive it.
  HostExchange(const JobShape& shape, const LayoutBuilder& buffers)
      : shape_(shape), buffers_(buffers) {}

  /// The additions of partials after which only the subtrees of this host's groups are left of its
  /// own; then, with those of all hosts, the others.
  std::vector<FoldStep::Merge> own_merges(int stage) const { return merges(stage, true); }
  std::vector<FoldStep::Merge> merges(int stage) const { return merges(stage, false); }
  /// The part of the layer's packed sums that this host adds.
  HomeRange own_part(int layer) const { return part(layer, shape_.host); }

  /// The subtrees go to the owners of their parts.
  std::vector<Transfer> scatter(int stage, int layer) const;
  /// The whole parts go to all.
  std::vector<Transfer> gather(int layer) const;
  /// Losses and their weights, of a step or of an evaluation with its metrics.
  std::vector<Transfer> numbers() const;
  std::vector<Transfer> eval_numbers() const;

 private:
  enum class Phase : std::uint8_t { scatter, gather, numbers, eval_numbers };

  int num_hosts() const { return static_cast<int>(shape_.host_groups.size()); }
  std::vector<FoldStep::Merge> merges(int stage, bool own) const;
  HomeRange part(int layer, int host) const;
  Bytes partial(int stage, int layer, int first_group) const;
  static std::uint64_t tag(Phase phase, int layer, int number);
  template <typename Range>
  std::vector<Transfer> tell_all(Phase phase, int layer, const Range& range_of) const;

  const JobShape& shape_;
  const LayoutBuilder& buffers_;
};

}  // namespace spillway
