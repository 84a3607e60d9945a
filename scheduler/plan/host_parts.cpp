#include "scheduler/plan/host_parts.h"

#include <algorithm>
#include <iterator>

#include "core/device/kernels.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr auto kChunk = static_cast<std::int64_t>(kernels::kNormChunk);

std::int64_t num_chunks(const ParamSpec& param) {
  return (param.tensor.elements() + kChunk - 1) / kChunk;
}

/// Adds elements of a parameter that begins at `begin`. What lies between parameters belongs to
/// nobody, so consecutive ones become one range.
void add_range(std::vector<HomeRange>& ranges, Bytes begin, ElementRange elements, Bytes size) {
  if (elements.size() == 0) return;
  const Bytes first = begin + static_cast<Bytes>(elements.begin) * size;
  const Bytes end = begin + static_cast<Bytes>(elements.end) * size;
  if (!ranges.empty() && round_up(ranges.back().home + ranges.back().bytes, kAlignment) == first) {
    ranges.back().bytes = end - ranges.back().home;
  } else {
    ranges.push_back({first, end - first});
  }
}

/// The hosts that take part.
std::vector<int> hosts_of(const JobShape& shape) {
  if (!shape.has_peers()) return {shape.host};
  std::vector<int> hosts;
  for (int h = 0; h < static_cast<int>(shape.host_groups.size()); ++h) {
    if (shape.takes_part(h)) hosts.push_back(h);
  }
  return hosts;
}

}  // namespace

std::vector<int> uses_of(const ModelSpec& model) {
  std::vector<int> uses(model.params.size());
  for (const LayerSpec& layer : model.layers) {
    for (int p : layer.params) ++uses[at(p)];
  }
  return uses;
}

std::vector<std::vector<int>> weights_blocks(const ModelSpec& model) {
  const std::vector<int> uses = uses_of(model);
  std::vector<std::vector<int>> blocks;
  for (int p = 0; p < static_cast<int>(model.params.size()); ++p) {
    if (uses[at(p)] != 1) blocks.push_back({p});
  }
  for (const LayerSpec& layer : model.layers) {
    std::vector<int> own;
    for (int p : layer.params) {
      if (uses[at(p)] == 1) own.push_back(p);
    }
    const auto shared = std::ranges::stable_partition(
        own, [&](int p) { return !model.params[at(p)].can_be_shared(); });
    blocks.emplace_back(own.begin(), shared.begin());
    blocks.emplace_back(shared.begin(), shared.end());
  }
  return blocks;
}

HostParts::HostParts(const ModelSpec& model, const std::vector<std::vector<int>>& blocks,
                     const JobShape& shape)
    : model_(model), parts_(model.params.size()) {
  const std::vector<int> hosts = hosts_of(shape);
  const auto num_hosts = std::ssize(hosts);
  std::int64_t first = 0;  // hosts take turns, or small blocks would all be with the same ones
  for (const std::vector<int>& block : blocks) {
    std::vector<int> summed;
    std::ranges::copy_if(block, std::back_inserter(summed),
                         [&](int p) { return model.params[at(p)].has_sum(); });
    std::int64_t chunks = 0, before = 0;  // of the block, of the parameters before
    for (int p : summed) chunks += num_chunks(model.params[at(p)]);
    for (int p : summed) {
      const std::int64_t own = num_chunks(model.params[at(p)]);
      const auto begin_of = [&](std::int64_t turn) {
        const std::int64_t chunk = chunks * turn / num_hosts - before;
        return std::min(std::clamp<std::int64_t>(chunk, 0, own) * kChunk,
                        model.params[at(p)].tensor.elements());
      };
      const auto host_at = [&](std::int64_t turn) {
        return hosts[static_cast<std::size_t>((first + turn) % num_hosts)];
      };
      for (std::int64_t turn = 0; turn < num_hosts; ++turn) {
        const ElementRange elements{begin_of(turn), begin_of(turn + 1)};
        if (elements.size() == 0) continue;
        const std::int64_t neighbour = turn + 1 < num_hosts ? turn + 1 : turn - 1;
        parts_[at(p)].push_back({.host = host_at(turn),
                                 .shadow = shape.is_shadowed() ? host_at(neighbour) : -1,
                                 .elements = elements});
      }
      before += own;
    }
    if (!summed.empty()) ++first;
  }
}

const HostPart* HostParts::part_of(int param, int host) const {
  const auto part = std::ranges::find(of(param), host, &HostPart::host);
  return part == of(param).end() ? nullptr : &*part;
}

ElementRange HostParts::of(int param, int host) const {
  const HostPart* part = part_of(param, host);
  return part ? part->elements : ElementRange();
}

ElementRange HostParts::kept(int param, int host) const {
  ElementRange found;
  for (const HostPart& part : of(param)) {
    if (part.host != host && part.shadow != host) continue;
    found = {found.size() > 0 ? found.begin : part.elements.begin, part.elements.end};
  }
  return found;
}

/// `elements_of(param)`: of each parameter.
template <typename Elements>
std::vector<HomeRange> HostParts::sums(const LayerSpec& layer, const SumPlaces& places,
                                       const Elements& elements_of) const {
  std::vector<HomeRange> found;
  for (std::size_t i = 0; i < layer.params.size(); ++i) {
    const ParamSpec& param = model_.params[at(layer.params[i])];
    if (!param.has_sum()) continue;
    add_range(found, places.packed_offsets[i], elements_of(layer.params[i]),
              size_of(param.finished_sum().dtype));
  }
  return found;
}

std::vector<HomeRange> HostParts::of_sums(const LayerSpec& layer, const SumPlaces& places,
                                          int host) const {
  return sums(layer, places, [&](int p) { return of(p, host); });
}

std::vector<HomeRange> HostParts::kept_sums(const LayerSpec& layer, const SumPlaces& places,
                                            int host) const {
  return sums(layer, places, [&](int p) { return kept(p, host); });
}

std::vector<HomeRange> HostParts::shadowed_sums(const LayerSpec& layer, const SumPlaces& places,
                                                int owner, int shadow) const {
  return sums(layer, places, [&](int p) {
    const HostPart* part = part_of(p, owner);
    return part && part->shadow == shadow ? part->elements : ElementRange();
  });
}

std::vector<HomeRange> HostParts::of_block(const Layout& layout, int weights_buffer, int host,
                                           int reader) const {
  std::vector<HomeRange> found;
  for (int p = 0; p < static_cast<int>(model_.params.size()); ++p) {
    if (layout.params[at(p)].weights_buffer != weights_buffer) continue;
    const HostPart* part = part_of(p, host);
    if (!part || part->shadow == reader) continue;
    add_range(found, layout.in_block(p), part->elements,
              size_of(model_.params[at(p)].tensor.dtype));
  }
  return found;
}

}  // namespace spillway
