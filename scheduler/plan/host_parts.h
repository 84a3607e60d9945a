#pragma once

#include <vector>

#include "scheduler/plan/lower.h"
#include "scheduler/plan/program.h"

namespace spillway {

/// By parameter: the number of layers that use it.
std::vector<int> uses_of(const ModelSpec& model);
/// The parameters of each block of weights, all of them once: each parameter that several layers
/// use; then by layer, its others. Those that trials can share have their own block.
std::vector<std::vector<int>> weights_blocks(const ModelSpec& model);

/// Divides the sum of each parameter among the hosts that train a job together: a host adds its
/// part of it, and if their state is sharded, it also updates these elements. Every host derives
/// the same parts. The chunks of a block of weights are divided as evenly as possible.
///
/// The shadow of a part, if there are shadows, has a neighbouring one, so what a host keeps of a
/// parameter is one range. In the mean over many blocks that is two parts.
class HostParts {
 public:
  /// Alone, a host has all. The model outlives it.
  HostParts(const ModelSpec& model, const std::vector<std::vector<int>>& blocks,
            const JobShape& shape);

  /// Ascending, without empty ones; none of a parameter that has no sum.
  const std::vector<HostPart>& of(int param) const { return parts_[at(param)]; }
  /// Empty if the host has none.
  ElementRange of(int param, int host) const;
  /// Its part and what it shadows.
  ElementRange kept(int param, int host) const;
  /// What a host adds of the packed sums of a layer, ascending; what it needs of them, to update
  /// what it keeps; what `owner` adds and `shadow` also needs.
  std::vector<HomeRange> of_sums(const LayerSpec& layer, const SumPlaces& places, int host) const;
  std::vector<HomeRange> kept_sums(const LayerSpec& layer, const SumPlaces& places, int host) const;
  std::vector<HomeRange> shadowed_sums(const LayerSpec& layer, const SumPlaces& places, int owner,
                                       int shadow) const;
  /// A host's part of a block of weights, as devices read them, if `reader` does not update it,
  /// too; `layout` has the homes.
  std::vector<HomeRange> of_block(const Layout& layout, int weights_buffer, int host,
                                  int reader) const;

 private:
  const HostPart* part_of(int param, int host) const;  ///< null: the host has none
  template <typename Elements>
  std::vector<HomeRange> sums(const LayerSpec& layer, const SumPlaces& places,
                              const Elements& elements_of) const;

  const ModelSpec& model_;
  std::vector<std::vector<HostPart>> parts_;  // by parameter
};

}  // namespace spillway
