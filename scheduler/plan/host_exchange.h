#pragma once

#include <vector>

#include "scheduler/plan/layout.h"
#include "scheduler/plan/lower.h"

namespace spillway {

/// What the hosts that train a job together send each other. Every host derives the same transfers
/// from its plan, whatever its lanes: a host sends the finished subtrees of its groups.
///
/// Each host adds its part of the sum of a layer (HostParts), as in a reduce-scatter and an
/// all-gather ("Optimization of Collective Communication Operations in MPICH", Thakur et al.,
/// 2005), but in the order of the tree (core/base/fold.h). All get the whole sum, or, if their
/// state is sharded, the weights that its host has updated, as in stage 1 of ZeRO ("ZeRO: Memory
/// Optimizations Toward Training Trillion Parameter Models", Rajbhandari et al., 2020). A shadow
/// gets the sum instead, and makes the same update.
class HostExchange {
 public:
  /// The shape has the hosts; all outlive it.
  HostExchange(const ModelSpec& model, const JobShape& shape, const LayoutBuilder& buffers)
      : model_(model), shape_(shape), buffers_(buffers) {}

  /// The additions of partials after which only the subtrees of this host's groups are left of its
  /// own; then, with those of all hosts, the others.
  std::vector<FoldStep::Merge> own_merges(int stage) const { return merges(stage, true); }
  std::vector<FoldStep::Merge> merges(int stage) const { return merges(stage, false); }
  /// What this host adds of the layer's packed sums.
  std::vector<HomeRange> own_parts(int layer) const { return parts(layer, shape_.host); }

  /// The subtrees go to the hosts that add them.
  std::vector<Transfer> scatter(int stage, int layer) const;
  /// The whole parts go to all.
  std::vector<Transfer> gather(int layer) const;
  /// They go to their shadows.
  std::vector<Transfer> shade(int layer) const;
  /// The updated weights of a buffer go to all that do not update them, too.
  std::vector<Transfer> spread(int weights_buffer) const;
  /// Losses and their weights, of a step or of an evaluation with its metrics; of a step with
  /// sharded state also squared norms.
  std::vector<Transfer> numbers() const;
  std::vector<Transfer> eval_numbers() const;

 private:
  enum class Phase : std::uint8_t { scatter, gather, shade, numbers, eval_numbers, norms, spread };

  int num_hosts() const { return static_cast<int>(shape_.host_groups.size()); }
  std::vector<FoldStep::Merge> merges(int stage, bool own) const;
  std::vector<HomeRange> parts(int layer, int host) const;
  Bytes partial(int stage, int layer, int first_group) const;
  template <typename Ranges>
  std::vector<Transfer> tell_all(Phase phase, int index, const Ranges& ranges_of) const;

  const ModelSpec& model_;
  const JobShape& shape_;
  const LayoutBuilder& buffers_;
};

}  // namespace spillway
