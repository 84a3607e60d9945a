#include "scheduler/plan/host_exchange.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/fold.h"
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

/// Its bytes start at a multiple of kAlignment. None if the host takes no part.
HomeRange HostExchange::part(int layer, int host) const {
  const Bytes units = buffers_.layout().layers[at(layer)].sum.packed_bytes / kAlignment;
  const auto has_groups = [](int groups) { return groups > 0; };
  const auto first = shape_.host_groups.begin();
  const auto parts = std::count_if(first, shape_.host_groups.end(), has_groups);
  const auto begin_of = [&](int of_host) {  // behind the parts of the hosts before
    const auto before = std::count_if(first, first + of_host, has_groups);
    return units * static_cast<Bytes>(before) / static_cast<Bytes>(parts) * kAlignment;
  };
  return {begin_of(host), begin_of(host + 1) - begin_of(host)};
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

std::uint64_t HostExchange::tag(Phase phase, int layer, int number) {
  const auto word = [](int value) { return static_cast<std::uint64_t>(value - kEvalNumbers); };
  return word(layer) << 20 | word(number) << 2 | static_cast<std::uint64_t>(phase);
}

std::vector<Transfer> HostExchange::scatter(int stage, int layer) const {
  const HomeRange own = own_part(layer);
  std::vector<Transfer> transfers;
  const auto add = [&](int peer, bool is_sent, int first_group, HomeRange range) {
    if (range.bytes == 0) return;
    transfers.push_back({.peer = peer,
                         .is_sent = is_sent,
                         .tag = tag(Phase::scatter, layer, first_group),
                         .home = partial(stage, layer, first_group) + range.home,
                         .bytes = range.bytes});
  };
  for (int peer = 0; peer < num_hosts(); ++peer) {
    if (peer == shape_.host) continue;
    for (int first : shape_.subtrees_of(shape_.host)) add(peer, true, first, part(layer, peer));
    for (int first : shape_.subtrees_of(peer)) add(peer, false, first, own);
  }
  return transfers;
}

/// Every host has the range `range_of(host)` and sends it to all others that take part.
template <typename Range>
std::vector<Transfer> HostExchange::tell_all(Phase phase, int layer, const Range& range_of) const {
  std::vector<Transfer> transfers;
  const auto add = [&](int peer, bool is_sent, int owner) {
    const HomeRange range = range_of(owner);
    if (range.bytes == 0) return;
    transfers.push_back({peer, is_sent, tag(phase, layer, owner), range.home, range.bytes});
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
  return tell_all(Phase::gather, layer, [&](int host) {
    const HomeRange range = part(layer, host);
    return HomeRange{sums + range.home, range.bytes};
  });
}

std::vector<Transfer> HostExchange::numbers() const {
  const Layout& layout = buffers_.layout();
  return tell_all(Phase::numbers, kStepNumbers, [&](int host) {
    const GroupRange groups = shape_.groups_of(host);
    const Bytes begin = layout.numbers(shape_.first_vn(groups.begin));
    return HomeRange{begin, layout.numbers(shape_.first_vn(groups.end)) - begin};
  });
}

std::vector<Transfer> HostExchange::eval_numbers() const {
  const Layout& layout = buffers_.layout();
  return tell_all(Phase::eval_numbers, kEvalNumbers, [&](int host) {
    const GroupRange groups = shape_.groups_of(host);
    const Bytes begin = layout.numbers_of_eval(shape_.first_eval_vn(groups.begin));
    return HomeRange{begin, layout.numbers_of_eval(shape_.first_eval_vn(groups.end)) - begin};
  });
}

}  // namespace spillway
