#include "scheduler/plan/host_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/fold.h"
#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

Bytes bytes_of(const HostOpSpec& op, bool is_sent) {
  Bytes bytes = 0;
  for (const Transfer& transfer : op.transfers) {
    if (transfer.is_sent == is_sent) bytes += transfer.bytes;
  }
  return bytes;
}

/// Of the transfer with this number among those of an exchange from one host to another, in 43
/// bits.
template <typename Phase>
std::uint64_t tag_of(Phase phase, int index, std::uint64_t number) {
  constexpr unsigned kPhaseBits = 3, kNumberBits = 20, kIndexBits = 20;
  const auto word = static_cast<std::uint64_t>(index - kEvalNumbers);
  if (number >> kNumberBits > 0 || word >> kIndexBits > 0) {
    throw Error("the model has more layers or parts than hosts can exchange, 2^20");
  }
  return (word << kNumberBits | number) << kPhaseBits | static_cast<std::uint64_t>(phase);
}

}  // namespace

Bytes sent_bytes(const HostOpSpec& op) { return bytes_of(op, true); }
Bytes taken_bytes(const HostOpSpec& op) { return bytes_of(op, false); }

Bytes sent_bytes(const Program& program) {
  Bytes bytes = 0;
  for (const HostOpSpec& op : program.host_ops) bytes += sent_bytes(op);
  return bytes;
}

GroupRange JobShape::groups_of(int of_host) const {
  if (host_groups.empty()) return {0, groups};
  const auto own = host_groups.begin() + of_host;
  const int begin = std::accumulate(host_groups.begin(), own, 0);
  return {begin, begin + *own};
}

std::vector<int> JobShape::subtrees_of(int of_host) const {
  const GroupRange own = groups_of(of_host);
  std::vector<int> firsts;
  if (own.begin == own.end) return firsts;
  for (LeafRange part : subtrees({own.begin, own.end}, groups)) firsts.push_back(part.begin);
  return firsts;
}

std::vector<HomeRange> HostExchange::parts(int layer, int host) const {
  const SumPlaces& places = buffers_.layout().layers[at(layer)].sum;
  return buffers_.host_parts().of_sums(model_.layers[at(layer)], places, host);
}

Bytes HostExchange::partial(int stage, int layer, int first_group) const {
  const int number = buffers_.position_of_partial(stage, first_group);
  return buffers_.layout().partial(layer, at(number));
}

std::vector<FoldStep::Merge> HostExchange::merges(int stage, bool own) const {
  const GroupRange groups = shape_.own_groups();
  const auto position = [&](int first) { return buffers_.position_of_partial(stage, first); };
  std::vector<FoldStep::Merge> found;
  for (const auto& [into, from] : remaining_merges(buffers_.partials(stage), shape_.groups)) {
    const int end = std::min(from + (from - into), shape_.groups);  // of the sum
    const bool is_own = into >= groups.begin && end <= groups.end;
    if (is_own == own) found.push_back({position(into), position(from)});
  }
  return found;
}

std::vector<Transfer> HostExchange::scatter(int stage, int layer) const {
  std::vector<Transfer> transfers;
  const auto add = [&](int peer, int from, int to) {
    std::uint64_t number = 0;
    const std::vector<HomeRange> ranges = parts(layer, to);
    for (int first_group : shape_.subtrees_of(from)) {
      for (const HomeRange& range : ranges) {
        transfers.push_back({.peer = peer,
                             .is_sent = from == shape_.host,
                             .tag = tag_of(Phase::scatter, layer, number++),
                             .home = partial(stage, layer, first_group) + range.home,
                             .bytes = range.bytes});
      }
    }
  };
  for (int peer = 0; peer < num_hosts(); ++peer) {
    if (peer == shape_.host) continue;
    add(peer, shape_.host, peer);
    add(peer, peer, shape_.host);
  }
  return transfers;
}

/// Every host sends the ranges `ranges_of(host, to)` to all others that take part.
template <typename Ranges>
std::vector<Transfer> HostExchange::tell_all(Phase phase, int index,
                                             const Ranges& ranges_of) const {
  std::vector<Transfer> transfers;
  const auto add = [&](int peer, bool is_sent, int from) {
    std::uint64_t number = 0;
    for (const HomeRange& range : ranges_of(from, is_sent ? peer : shape_.host)) {
      if (range.bytes == 0) continue;
      transfers.push_back({peer, is_sent, tag_of(phase, index, number++), range.home, range.bytes});
    }
  };
  for (int peer = 0; peer < num_hosts(); ++peer) {
    if (peer == shape_.host || !shape_.takes_part(peer)) continue;
    add(peer, true, shape_.host);
    add(peer, false, peer);
  }
  return transfers;
}

std::vector<Transfer> HostExchange::gather(int layer) const {
  const Bytes sums = buffers_.layout().partial(layer, 0);
  return tell_all(Phase::gather, layer, [&](int host, int) {
    std::vector<HomeRange> ranges = parts(layer, host);
    for (HomeRange& range : ranges) range.home += sums;
    return ranges;
  });
}

std::vector<Transfer> HostExchange::shade(int layer) const {
  const Layout& layout = buffers_.layout();
  return tell_all(Phase::shade, layer, [&](int owner, int shadow) {
    std::vector<HomeRange> ranges = buffers_.host_parts().shadowed_sums(
        model_.layers[at(layer)], layout.layers[at(layer)].sum, owner, shadow);
    for (HomeRange& range : ranges) range.home += layout.partial(layer, 0);
    return ranges;
  });
}

std::vector<Transfer> HostExchange::spread(int weights_buffer) const {
  return tell_all(Phase::spread, weights_buffer, [&](int host, int reader) {
    return buffers_.host_parts().of_block(buffers_.layout(), weights_buffer, host, reader);
  });
}

std::vector<Transfer> HostExchange::numbers() const {
  const Layout& layout = buffers_.layout();
  std::vector<Transfer> transfers = tell_all(Phase::numbers, kStepNumbers, [&](int host, int) {
    const GroupRange groups = shape_.groups_of(host);
    const Bytes begin = layout.numbers(shape_.first_vn(groups.begin));
    return std::vector{HomeRange{begin, layout.numbers(shape_.first_vn(groups.end)) - begin}};
  });
  if (!layout.is_sharded()) return transfers;
  const auto norms = tell_all(Phase::norms, kStepNumbers,
                              [&](int host, int) { return std::vector{layout.norms[at(host)]}; });
  transfers.insert(transfers.end(), norms.begin(), norms.end());
  return transfers;
}

std::vector<Transfer> HostExchange::eval_numbers() const {
  const Layout& layout = buffers_.layout();
  return tell_all(Phase::eval_numbers, kEvalNumbers, [&](int host, int) {
    const GroupRange groups = shape_.groups_of(host);
    const Bytes begin = layout.numbers_of_eval(shape_.first_eval_vn(groups.begin));
    const Bytes end = layout.numbers_of_eval(shape_.first_eval_vn(groups.end));
    return std::vector{HomeRange{begin, end - begin}};
  });
}

}  // namespace spillway
