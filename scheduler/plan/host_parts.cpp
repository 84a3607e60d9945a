#include "scheduler/plan/host_parts.h"

#include <algorithm>

#include "core/device/kernels.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr auto kChunk = static_cast<std::int64_t>(kernels::kNormChunk);

std::int64_t num_chunks(const ParamSpec& param) {
  return (param.tensor.elements() + kChunk - 1) / kChunk;
}

}  // namespace

HostParts::HostParts(const ModelSpec& model, const std::vector<std::vector<int>>& blocks,
                     const JobShape& shape)
    : parts_(model.params.size()) {
  std::vector<int> hosts{shape.host};
  if (shape.has_peers()) {
    hosts.clear();
    for (int h = 0; h < static_cast<int>(shape.host_groups.size()); ++h) {
      if (shape.takes_part(h)) hosts.push_back(h);
    }
  }
  const auto num_hosts = std::ssize(hosts);
  std::int64_t first = 0;  // hosts take turns, or small blocks would all be with the same ones
  for (const std::vector<int>& block : blocks) {
    std::int64_t chunks = 0;
    for (int p : block)
      chunks += model.params[at(p)].has_sum() ? num_chunks(model.params[at(p)]) : 0;
    std::int64_t before = 0;  // chunks of the parameters before
    for (int p : block) {
      const ParamSpec& param = model.params[at(p)];
      if (!param.has_sum()) continue;
      const std::int64_t own = num_chunks(param);
      for (std::int64_t turn = 0; turn < num_hosts; ++turn) {
        const auto in_param = [&](std::int64_t of_turn) {
          const std::int64_t chunk = chunks * of_turn / num_hosts - before;
          return std::clamp<std::int64_t>(chunk, 0, own) * kChunk;
        };
        const std::int64_t begin = in_param(turn);
        const std::int64_t end = std::min(in_param(turn + 1), param.tensor.elements());
        const int host = hosts[static_cast<std::size_t>((first + turn) % num_hosts)];
        if (begin < end) parts_[at(p)].push_back({.host = host, .elements = {begin, end}});
      }
      before += own;
    }
    ++first;
  }
}

ElementRange HostParts::of(int param, int host) const {
  const auto part = std::ranges::find(of(param), host, &HostPart::host);
  return part == of(param).end() ? ElementRange() : part->elements;
}

}  // namespace spillway
