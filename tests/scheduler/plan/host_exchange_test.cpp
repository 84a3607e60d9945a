#include "scheduler/plan/host_exchange.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/fold.h"
#include "tests/support/models/small_model.h"

namespace spillway {
namespace {

using testing::bf16_chain;
using testing::chain;
using testing::profile_of;

/// A sum, written out: "(0+1)" of groups 0 and 1.
struct Sum {
  std::string text;
  Sum operator+(const Sum& other) const { return {"(" + text + "+" + other.text + ")"}; }
  bool operator==(const Sum&) const = default;
};

/// By host. `lanes`: by host, the groups of each lane.
std::vector<JobShape> shapes_of(int groups, const std::vector<std::vector<int>>& lanes) {
  std::vector<int> host_groups;
  for (const auto& own : lanes) {
    host_groups.push_back(std::accumulate(own.begin(), own.end(), 0));
  }
  std::vector<JobShape> shapes;
  for (int h = 0; h < static_cast<int>(lanes.size()); ++h) {
    shapes.push_back({.virtual_nodes = 2 * groups,
                      .groups = groups,
                      .lane_groups = lanes[at(h)],
                      .eval_virtual_nodes = 3,
                      .host_groups = host_groups,
                      .host = h});
  }
  return shapes;
}

/// A training step of each host, whose sums are texts by home, one for each kAlignment bytes.
class Hosts {
 public:
  /// `lanes`: by host, the groups of each lane. `kind`: the step's.
  Hosts(const ModelSpec& model, int groups, const std::vector<std::vector<int>>& lanes,
        bool shards_state = false, StepKind kind = {.train = true}, bool shadows_state = false)
      : model_(model), groups_(groups), kind_(kind) {
    for (JobShape shape : shapes_of(groups, lanes)) {
      const int h = shape.host;
      shape.shards_state = shards_state;
      shape.shadows_state = shadows_state;
      plans_.push_back(lower(model, profile_of(model), shape, {{0, num_layers()}}, false));
      homes_.emplace_back();
      ended_.emplace_back(program(h).host_ops.size());
      add_own_sums(h);
      add_own_weights(h);
    }
  }

  /// False if a host waits for ever.
  bool run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (int h = 0; h < num_hosts(); ++h) {
        for (int op = 0; op < static_cast<int>(ended_[at(h)].size()); ++op) {
          if (ended_[at(h)][at(op)] || !may_begin(h, op) || !carry_out(h, op)) continue;
          ended_[at(h)][at(op)] = moves = true;
        }
      }
    }
    for (const auto& ended : ended_) {
      for (bool has_ended : ended) {
        if (!has_ended) return false;
      }
    }
    return true;
  }

  /// Of each host, layer and piece of kAlignment bytes.
  std::set<std::string> sums() const {
    std::set<std::string> found;
    for (int h = 0; h < num_hosts(); ++h) {
      for (int l = 0; l < num_layers(); ++l) {
        for (Bytes b = 0; b < packed(h, l); b += kAlignment) {
          const auto sum = homes_[at(h)].find(plans_[at(h)].layout.partial(l, 0) + b);
          found.insert(sum == homes_[at(h)].end() ? "nothing" : sum->second.text);
        }
      }
    }
    return found;
  }

  /// That ops have not taken: none if both sides agree on all.
  std::size_t num_left() const { return sent_.size(); }
  Bytes bytes_sent() const { return bytes_sent_; }

  const Program& program(int host) const { return *plans_[at(host)].programs[kind_.index()]; }
  const Layout& layout(int host) const { return plans_[at(host)].layout; }
  /// What lies there at home; "": nothing.
  std::string text_at(int host, Bytes home) const {
    const auto found = homes_[at(host)].find(home);
    return found == homes_[at(host)].end() ? "" : found->second.text;
  }

  /// A weight as devices read it.
  Bytes weight(int host, int param, std::int64_t element) const {
    return layout(host).in_block(param) +
           static_cast<Bytes>(element) * size_of(model_.params[at(param)].tensor.dtype);
  }

 private:
  int num_hosts() const { return static_cast<int>(plans_.size()); }
  int num_layers() const { return static_cast<int>(model_.layers.size()); }
  Bytes packed(int host, int layer) const {
    return plans_[at(host)].layout.layers[at(layer)].sum.packed_bytes;
  }

  /// What the lanes of the host have sent home.
  void add_own_sums(int host) {
    const JobPlan& plan = plans_[at(host)];
    for (const Cell& cell : plan.strategy.stages.front().cells) {
      TreeSum<Sum> tree(groups_);
      for (int g = cell.groups.begin; g < cell.groups.end; ++g) {
        tree.add({g, g + 1}, {std::to_string(g)});
      }
      const auto number = &cell - plan.strategy.stages.front().cells.data();
      const FoldPlan fold = plan_fold(cell.groups, groups_, 2);
      for (const auto& [first, slot] : fold.roots) {
        const auto part = std::ranges::find_if(
            tree.parts(), [&](const auto& item) { return item.first.begin == first; });
        for (int l = 0; l < num_layers(); ++l) {
          const int buffer = plan.layout.sum_buffers[at(number)][at(slot)][at(l)];
          const Bytes home = plan.layout.buffers[at(buffer)].home;
          for (Bytes b = 0; b < packed(host, l); b += kAlignment) {
            homes_[at(host)][home + b] = part->second;
          }
        }
      }
    }
  }

  /// It has updated its part of the weights and what it shadows, and writes the numbers of the
  /// hosts of these parts there.
  void add_own_weights(int host) {
    for (int p = 0; p < static_cast<int>(model_.params.size()); ++p) {
      for (const HostPart& part : layout(host).params[at(p)].parts) {
        if (part.host != host && part.shadow != host) continue;
        const Bytes end = weight(host, p, part.elements.end);
        Bytes home = weight(host, p, part.elements.begin);
        for (; home < end; home += kAlignment) homes_[at(host)][home] = {std::to_string(part.host)};
      }
    }
  }

  bool may_begin(int host, int op) const {
    const auto has_ended = [&](int before) { return ended_[at(host)][at(before)]; };
    return std::ranges::all_of(program(host).host_ops[at(op)].host_deps, has_ended);
  }

  bool carry_out(int host, int number) {
    const HostOpSpec& op = program(host).host_ops[at(number)];
    if (op.kind == HostOpKind::add) add(host, op);
    return op.kind != HostOpKind::exchange || exchange(host, number, op);
  }

  void add(int host, const HostOpSpec& op) {
    auto& home = homes_[at(host)];
    const Layout& layout = plans_[at(host)].layout;
    for (const FoldStep::Merge& merge : op.merges) {
      const Bytes into = layout.partial(op.index, at(merge.into));
      const Bytes from = layout.partial(op.index, at(merge.from));
      for (const HomeRange& part : op.parts) {
        for (Bytes b = part.home; b < part.home + part.bytes; b += kAlignment) {
          home[into + b] = home.at(into + b) + home.at(from + b);
        }
      }
    }
  }

  /// True once it has sent all and taken all.
  bool exchange(int host, int number, const HostOpSpec& op) {
    for (const Transfer& transfer : op.transfers) {
      if (!transfer.is_sent || begun_.contains({host, number})) continue;
      std::vector<Sum> values;
      for (Bytes b = 0; b < transfer.bytes; b += kAlignment) {
        values.push_back(homes_[at(host)][transfer.home + b]);
      }
      bytes_sent_ += transfer.bytes;
      const bool is_new =
          sent_.emplace(std::tuple(host, transfer.peer, transfer.tag), values).second;
      EXPECT_TRUE(is_new) << "tag " << transfer.tag << " is in use";
    }
    begun_.insert({host, number});
    const auto found = [&](const Transfer& transfer) {
      return sent_.find({transfer.peer, host, transfer.tag});
    };
    for (const Transfer& transfer : op.transfers) {
      if (!transfer.is_sent && found(transfer) == sent_.end()) return false;
    }
    for (const Transfer& transfer : op.transfers) {
      if (transfer.is_sent) continue;
      const auto taken = sent_.extract(found(transfer));
      EXPECT_EQ(taken.mapped().size(), (transfer.bytes + kAlignment - 1) / kAlignment);
      Bytes place = transfer.home;
      for (const Sum& value : taken.mapped()) {
        homes_[at(host)][place] = value;
        place += kAlignment;
      }
    }
    return true;
  }

  const ModelSpec& model_;
  const int groups_;
  const StepKind kind_;
  std::vector<JobPlan> plans_;
  std::vector<std::map<Bytes, Sum>> homes_;
  std::vector<std::vector<bool>> ended_;
  std::set<std::pair<int, int>> begun_;
  std::map<std::tuple<int, int, std::uint64_t>, std::vector<Sum>> sent_;  // from, to, tag
  Bytes bytes_sent_ = 0;
};

std::string whole_sum(int groups) {
  TreeSum<Sum> tree(groups);
  for (int g = 0; g < groups; ++g) tree.add({g, g + 1}, {std::to_string(g)});
  return tree.whole().text;
}

/// Numbers of at least 1 that add up to `sum`.
std::vector<int> parts_of(int sum, int most, std::mt19937_64& random) {
  std::vector<int> parts;
  while (sum > 0) {
    const bool is_last = static_cast<int>(parts.size()) + 1 == most;
    parts.push_back(is_last ? sum : 1 + static_cast<int>(random() % static_cast<unsigned>(sum)));
    sum -= parts.back();
  }
  return parts;
}

TEST(HostExchange, GivesEveryHostTheSumInTheOrderOfTheTree) {
  const ModelSpec model = chain(3, 1000);
  std::mt19937_64 random(1);
  for (int run = 0; run < 300; ++run) {
    const int groups = 2 + static_cast<int>(random() % 12);
    std::vector<std::vector<int>> lanes;
    for (int own : parts_of(groups, 5, random)) lanes.push_back(parts_of(own, 3, random));
    if (lanes.size() == 1) continue;
    Hosts hosts(model, groups, lanes);
    EXPECT_TRUE(hosts.run()) << run;
    EXPECT_EQ(hosts.sums(), std::set<std::string>{whole_sum(groups)}) << run;
    EXPECT_EQ(hosts.num_left(), 0u) << run;
    Bytes planned = 0;
    for (int h = 0; h < static_cast<int>(lanes.size()); ++h) {
      planned += sent_bytes(hosts.program(h));
    }
    EXPECT_EQ(hosts.bytes_sent(), planned);
  }
}

/// The control: hosts that add what they have, in the order of the hosts, get another sum.
TEST(HostExchange, DiffersFromTheSumInTheOrderOfTheHosts) {
  TreeSum<Sum> tree(6);
  const Sum by_hosts = Sum{"((0+1)+2)"} + Sum{"((3+4)+5)"};
  for (int g = 0; g < 6; ++g) tree.add({g, g + 1}, {std::to_string(g)});
  EXPECT_NE(by_hosts, tree.whole());
}

/// As a ring: with aligned shares, twice (H - 1) / H of the sums from each host.
TEST(HostExchange, SendsAsMuchAsARing) {
  constexpr int kHosts = 4;
  const ModelSpec model = chain(3, 4096);
  Hosts hosts(model, 8, std::vector<std::vector<int>>(kHosts, {2}));
  ASSERT_TRUE(hosts.run());
  Bytes sums = 0;
  for (const ParamSpec& param : model.params) sums += param.master().bytes();
  const Bytes ring = 2 * (kHosts - 1) * sums;
  const Bytes numbers = 2 * 16 * sizeof(double) * (kHosts - 1);
  EXPECT_EQ(hosts.bytes_sent(), ring + numbers);
}

std::vector<std::vector<int>> random_lanes(int groups, std::mt19937_64& random) {
  std::vector<std::vector<int>> lanes;
  while (lanes.size() < 2) {
    lanes.clear();
    for (int own : parts_of(groups, 5, random)) lanes.push_back(parts_of(own, 3, random));
  }
  return lanes;
}

/// Of 3 layers of one size, in f32 or bf16.
ModelSpec random_chain(std::mt19937_64& random) {
  const auto elements = 1 + static_cast<std::int64_t>(random() % 40000);
  return random() % 2 == 0 ? chain(3, elements) : bf16_chain(3, elements);
}

/// Each host gets the sum of what it updates alone, and then the weights that others updated.
TEST(HostExchange, OfShardedStateSpreadsWeightsInsteadOfSums) {
  std::mt19937_64 random(2);
  for (int run = 0; run < 100; ++run) {
    const ModelSpec model = random_chain(random);
    const int groups = 2 + static_cast<int>(random() % 12);
    Hosts hosts(model, groups, random_lanes(groups, random), true, kStepAfterStep);
    ASSERT_TRUE(hosts.run()) << run;
    EXPECT_EQ(hosts.num_left(), 0u) << run;
    for (int p = 0; p < static_cast<int>(model.params.size()); ++p) {
      const Layout::ParamPlace& first = hosts.layout(0).params[at(p)];
      std::int64_t next = 0;
      for (const HostPart& part : first.parts) {
        EXPECT_EQ(part.elements.begin, next);
        next = part.elements.end;
        const Layout& own = hosts.layout(part.host);
        EXPECT_EQ(own.params[at(p)].own, part.elements);
        const auto begin = static_cast<Bytes>(part.elements.begin) * sizeof(float);
        const auto end = static_cast<Bytes>(part.elements.end) * sizeof(float);
        for (Bytes b = begin; b < end; b += kAlignment) {
          EXPECT_EQ(hosts.text_at(part.host, own.params[at(p)].sum + b), whole_sum(groups));
        }
        const Bytes last = hosts.weight(0, p, part.elements.end);
        for (Bytes b = hosts.weight(0, p, part.elements.begin); b < last; b += kAlignment) {
          EXPECT_EQ(hosts.text_at(0, b), std::to_string(part.host));
        }
      }
      EXPECT_EQ(next, model.params[at(p)].tensor.elements());
    }
  }
}

/// A shadow gets the sum, and nobody sends it the weights that it updates.
TEST(HostExchange, OfShadowedStateGivesTheSumToTwoHosts) {
  std::mt19937_64 random(4);
  for (int run = 0; run < 100; ++run) {
    const ModelSpec model = random_chain(random);
    const int groups = 2 + static_cast<int>(random() % 12);
    const auto lanes = random_lanes(groups, random);
    Hosts hosts(model, groups, lanes, true, kStepAfterStep, true);
    ASSERT_TRUE(hosts.run()) << run;
    EXPECT_EQ(hosts.num_left(), 0u) << run;
    for (int p = 0; p < static_cast<int>(model.params.size()); ++p) {
      for (const HostPart& part : hosts.layout(0).params[at(p)].parts) {
        ASSERT_TRUE(part.shadow >= 0 && part.shadow != part.host);
        const auto begin = static_cast<Bytes>(part.elements.begin) * sizeof(float);
        const auto end = static_cast<Bytes>(part.elements.end) * sizeof(float);
        for (int host : {part.host, part.shadow}) {
          const Layout::ParamPlace& place = hosts.layout(host).params[at(p)];
          EXPECT_EQ(overlap(place.kept, part.elements), part.elements);
          for (Bytes b = begin; b < end; b += kAlignment) {
            EXPECT_EQ(hosts.text_at(host, place.sum + b), whole_sum(groups));
          }
        }
        for (int host = 0; host < static_cast<int>(lanes.size()); ++host) {
          const Bytes last = hosts.weight(host, p, part.elements.end);
          for (Bytes b = hosts.weight(host, p, part.elements.begin); b < last; b += kAlignment) {
            EXPECT_EQ(hosts.text_at(host, b), std::to_string(part.host));
          }
        }
      }
    }
  }
}

/// As many bytes as without shadows in f32: a shadow gets the sum instead of the weights. Each part
/// of the moments is on two hosts.
TEST(HostExchange, OfShadowedStateSendsAsMuchAsARing) {
  constexpr int kHosts = 4, kLayers = 4, kChunks = 8;
  constexpr Bytes kElements = kLayers * kChunks * 4096;
  const ModelSpec model = chain(kLayers, kChunks * 4096);
  const std::vector<std::vector<int>> lanes(kHosts, {2});
  Hosts sharded(model, 8, lanes, true, kStepAfterStep);
  Hosts shadowed(model, 8, lanes, true, kStepAfterStep, true);
  ASSERT_TRUE(sharded.run() && shadowed.run());
  EXPECT_EQ(shadowed.bytes_sent(), sharded.bytes_sent());
  for (int h = 0; h < kHosts; ++h) {
    EXPECT_EQ(shadowed.layout(h).moments_plane, kElements * 4 * 2 / kHosts);
  }
}

/// The positions of the subtrees that lanes of this host finish.
std::set<std::size_t> own_partials_of(const JobShape& shape) {
  std::map<int, bool> firsts;  // first group, whether it is of this host
  for (int host = 0; host < static_cast<int>(shape.host_groups.size()); ++host) {
    for (int first : shape.subtrees_of(host)) {
      if (host != shape.host) firsts[first] = false;
    }
  }
  for (const GroupRange& lane : lane_ranges(shape)) {
    for (const auto& [first, slot] : plan_fold(lane, shape.groups, 2).roots) firsts[first] = true;
  }
  std::set<std::size_t> own;
  std::size_t position = 0;
  for (const auto& [first, is_own] : firsts) {
    if (is_own) own.insert(position);
    ++position;
  }
  return own;
}

/// Rooms at home that are in use at the same time.
std::vector<HomeRange> rooms_of(const ModelSpec& model, const Layout& layout,
                                const HostParts& parts, const JobShape& shape) {
  std::vector<HomeRange> rooms(layout.norms);
  const std::set<std::size_t> own_partials = own_partials_of(shape);
  for (int p = 0; p < static_cast<int>(model.params.size()); ++p) {
    const Layout::ParamPlace& place = layout.params[at(p)];
    rooms.push_back({place.home, static_cast<Bytes>(place.held.size()) * sizeof(float)});
    if (layout.in_block(p) != place.home) {
      rooms.push_back({layout.in_block(p), model.params[at(p)].tensor.bytes()});
    }
    for (int i = 0; i < layout.moments; ++i) {
      rooms.push_back({layout.moment(p, i), static_cast<Bytes>(place.kept.size()) * sizeof(float)});
    }
  }
  for (int l = 0; l < static_cast<int>(model.layers.size()); ++l) {
    const Layout::LayerPlace& layer = layout.layers[at(l)];
    const auto own = parts.of_sums(model.layers[at(l)], layer.sum, shape.host);
    const auto kept = parts.kept_sums(model.layers[at(l)], layer.sum, shape.host);
    for (std::size_t k = 0; k < layer.partials.size(); ++k) {
      if (own_partials.contains(k) || (k == 0 && !layout.is_sharded())) {
        rooms.push_back({layer.partials[k], layer.sum.packed_bytes});
      } else {
        for (const HomeRange& part : k == 0 ? kept : own) {
          rooms.push_back({layer.partials[k] + part.home, part.bytes});
        }
      }
    }
  }
  return rooms;
}

TEST(HostExchange, RoomsAtHomeDoNotOverlap) {
  std::mt19937_64 random(3);
  for (int run = 0; run < 200; ++run) {
    const ModelSpec model = random_chain(random);
    const int groups = 2 + static_cast<int>(random() % 12);
    const auto lanes = random_lanes(groups, random);
    for (JobShape shape : shapes_of(groups, lanes)) {
      shape.shards_state = random() % 2 == 0;
      shape.shadows_state = random() % 2 == 0;
      const Layout layout = lower(model, profile_of(model), shape, {{0, 3}}, false).layout;
      const HostParts parts(model, {{0}, {1}, {2}}, shape);
      std::vector<HomeRange> rooms = rooms_of(model, layout, parts, shape);
      std::erase_if(rooms, [](const HomeRange& room) { return room.bytes == 0; });
      std::ranges::sort(rooms, {}, &HomeRange::home);
      for (std::size_t i = 1; i < rooms.size(); ++i) {
        EXPECT_LE(rooms[i - 1].home + rooms[i - 1].bytes, rooms[i].home) << run;
      }
      EXPECT_LE(rooms.back().home + rooms.back().bytes, layout.home_bytes) << run;
      for (const Layout::LayerPlace& layer : layout.layers) {
        const Bytes end = layer.total.home + layer.total.bytes;
        const auto has_it = [&](const HomeRange& room) {
          return room.home <= layer.total.home && end <= room.home + room.bytes;
        };
        EXPECT_TRUE(layer.total.bytes == 0 || std::ranges::any_of(rooms, has_it)) << run;
      }
    }
  }
}

/// Weights instead of sums, and the norms of chunks. Weights in bf16 take half as many bytes, and
/// each host has a part of the masters.
TEST(HostExchange, OfShardedStateSendsAsMuchAsARing) {
  constexpr int kHosts = 4, kLayers = 3, kChunks = 8;
  constexpr Bytes kElements = kLayers * kChunks * 4096;
  const std::vector<std::vector<int>> lanes(kHosts, {2});
  for (const ModelSpec& model :
       {chain(kLayers, kChunks * 4096), bf16_chain(kLayers, kChunks * 4096)}) {
    Hosts hosts(model, 8, lanes, true, kStepAfterStep);
    ASSERT_TRUE(hosts.run());
    const Bytes size = size_of(model.params[0].tensor.dtype);
    const Bytes numbers = (2 * 16 + kLayers * kChunks + kHosts) * sizeof(double) * (kHosts - 1);
    EXPECT_EQ(hosts.bytes_sent(), (kHosts - 1) * kElements * (4 + size) + numbers);
    Bytes moments = 0, masters = 0;
    for (int h = 0; h < kHosts; ++h) {
      moments += hosts.layout(h).moments_plane;
      for (const auto& place : hosts.layout(h).params) {
        masters += static_cast<Bytes>(place.held.size()) * sizeof(float);
      }
    }
    EXPECT_EQ(moments, round_up(kElements * 4, kPage));
    EXPECT_EQ(masters, kElements * 4 * (size == 4 ? kHosts : 1));
    EXPECT_EQ(Hosts(model, 8, lanes).layout(0).moments_plane, round_up(kElements * 4, kPage));
  }
}

}  // namespace
}  // namespace spillway
