#include "scheduler/plan/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "scheduler/simulation/step_cost.h"
#include "tests/support/models/divided_model.h"
#include "tests/support/models/small_model.h"
#include "tests/support/random/from_environment.h"
#include "tests/support/random/random_workload.h"

namespace spillway {
namespace {

using testing::campaign_size;
using testing::chain;
using testing::least_budget;
using testing::profile_of;

constexpr Bytes kAmple = 64_MiB;

void expect_cover(const std::vector<LayerRange>& shards, int num_layers) {
  int end = 0;
  for (LayerRange shard : shards) {
    EXPECT_EQ(shard.begin, end);
    EXPECT_GT(shard.end, shard.begin);
    end = shard.end;
  }
  EXPECT_EQ(end, num_layers);
}

/// A random model and the shape of its step.
struct RandomJob {
  explicit RandomJob(std::uint64_t seed) {
    testing::RandomWorkload random(seed);
    model = random.model();
    profile = random.profile(model);
    shape = random.shape(3);
  }
  Partition cut(Bytes budget, bool double_buffer) const {
    return partition(model, profile, shape, budget, OrderChoice::shard_major, double_buffer);
  }

  ModelSpec model;
  Profile profile;
  JobShape shape;
};

/// Every way to cut `num_layers` layers.
std::vector<std::vector<LayerRange>> all_cuts(int num_layers) {
  std::vector<std::vector<LayerRange>> cuts;
  for (int after = 0; after < 1 << (num_layers - 1); ++after) {
    std::vector<LayerRange> shards{{0, 0}};
    for (int l = 0; l < num_layers; ++l) {
      shards.back().end = l + 1;
      if (l + 1 < num_layers && (after >> l & 1) != 0) shards.push_back({l + 1, l + 1});
    }
    cuts.push_back(std::move(shards));
  }
  return cuts;
}

/// The definition of Partition: tries every cut.
class EveryCut {
 public:
  explicit EveryCut(const RandomJob& job)
      : table_(job.model, job.profile, job.shape),
        num_layers_(static_cast<int>(job.model.layers.size())),
        cuts_(all_cuts(num_layers_)) {
    for (int length = 1; length <= num_layers_; ++length) {
      limits_.push_back(0);
      for (int begin = 0; begin + length <= num_layers_; ++begin) {
        limits_.back() = std::max(limits_.back(), weights({begin, begin + length}));
      }
    }
  }

  Bytes smallest_budget() const {
    Bytes least = kNever;
    for (const auto& cut : cuts_) least = std::min(least, need(cut, 0));
    return round_up(least, kPage);
  }
  Bytes load_ahead_budget() const {
    Bytes least = kNever;
    for (Bytes limit : limits_) {
      for (const auto& cut : cuts_) {
        if (most_weights(cut) <= limit) least = std::min(least, need(cut, limit));
      }
    }
    return round_up(least, kPage);
  }
  std::vector<LayerRange> shards(Bytes budget, bool double_buffer) const {
    const auto ahead = double_buffer ? with_room(budget, 0) : std::vector<LayerRange>();
    const auto best = ahead.empty() ? fewest(budget, 0, budget) : ahead;
    const auto apart =
        ahead.empty() ? fewest(budget, 0, budget, trained()) : with_room(budget, trained());
    return !apart.empty() && copied(apart) < copied(best) ? apart : best;
  }
  /// The layers before it have no backward in shards of their own.
  int trained() const {
    int layer = 0;
    while (!range_need(table_, {0, layer + 1}).has_backward()) ++layer;
    return layer;
  }

 private:
  static constexpr Bytes kNever = ~Bytes{0};
  std::vector<LayerRange> with_room(Bytes budget, int cut_before) const {
    std::vector<LayerRange> best;
    for (Bytes limit : limits_) {
      if (limit >= budget) break;
      const auto found = fewest(budget, limit, limit, cut_before);
      if (!found.empty() && (best.empty() || found.size() < best.size())) best = found;
    }
    return best;
  }
  Bytes copied(const std::vector<LayerRange>& cut) const {
    Bytes bytes = 0;
    for (LayerRange shard : cut) {
      const bool once = shard.end <= trained() || shard == cut.back();
      bytes += weights(shard) * (once ? 1 : 2);
    }
    return bytes;
  }
  Bytes weights(LayerRange range) const { return range_need(table_, range).weights(); }
  Bytes most_weights(const std::vector<LayerRange>& cut) const {
    Bytes most = 0;
    for (LayerRange shard : cut) most = std::max(most, weights(shard));
    return most;
  }
  Bytes need(const std::vector<LayerRange>& cut, Bytes beside) const {
    Bytes most = 0;
    for (LayerRange shard : cut) {
      const RangeNeed range = range_need(table_, shard);
      const UnitNeed a = range.forward(), b = range.backward();
      const Bytes dedicated = table_.split.needed(std::max(a.planned(), b.planned()) + beside,
                                                  std::max(a.workspace, b.workspace));
      most = std::max(most, table_.split.dedicated_activations()
                                ? dedicated
                                : std::max(a.total(), b.total()) + beside);
    }
    return most;
  }
  /// Early shards are as long as possible.
  std::vector<LayerRange> fewest(Bytes budget, Bytes reserve, Bytes limit,
                                 int cut_before = 0) const {
    std::vector<LayerRange> best;
    const auto ends = [](const std::vector<LayerRange>& cut) {
      std::vector<int> found;
      for (LayerRange shard : cut) found.push_back(shard.end);
      return found;
    };
    for (const auto& cut : cuts_) {
      if (most_weights(cut) > limit || need(cut, reserve) > budget) continue;
      if (std::ranges::count(cut, cut_before, &LayerRange::begin) == 0) continue;
      const bool fewer = best.empty() || cut.size() < best.size();
      if (fewer || (cut.size() == best.size() && ends(cut) > ends(best))) best = cut;
    }
    return best;
  }

  const NeedTable table_;
  const int num_layers_;
  const std::vector<std::vector<LayerRange>> cuts_;
  std::vector<Bytes> limits_;
};

/// The layer that reads terms of pieces adds them up, and keeps the sum until its backward ends.
TEST(RangeNeed, CountsTheSumOfTermsInBackward) {
  const ModelSpec model = testing::divided_chain(1, 2);
  const std::size_t reader = 3;  // norm, two pieces, add, loss
  Profile profile = profile_of(model);
  const auto workspace = [&] {
    const NeedTable table(model, profile, JobShape{});
    return range_need(table, {static_cast<int>(reader), static_cast<int>(reader) + 1})
        .backward()
        .workspace;
  };
  profile.layers[reader].backward_peak = 1_MiB;
  const Bytes sum =
      round_up(model.edges[static_cast<std::size_t>(model.layers[reader].inputs[0])].tensor.bytes(),
               kAlignment);
  EXPECT_GE(workspace(), 1_MiB + sum);
}

TEST(Partition, RunsAWholeModelVnMajor) {
  const ModelSpec model = chain(5);
  const Partition cut =
      partition(model, profile_of(model), {}, kAmple, OrderChoice::automatic, true);
  EXPECT_TRUE(cut.fits && cut.vn_major);
  EXPECT_EQ(cut.shards, (std::vector<LayerRange>{{0, 5}}));
}

TEST(Partition, CutsIfOneByteIsMissing) {
  const ModelSpec model = chain(5);
  const Profile profile = profile_of(model);
  const auto whole = partition(model, profile, {}, kAmple, OrderChoice::vn_major, true);
  const auto at_need = [&](Bytes budget) {
    return partition(model, profile, {}, budget, OrderChoice::automatic, true);
  };
  EXPECT_TRUE(at_need(whole.smallest_budget).vn_major);
  EXPECT_FALSE(at_need(whole.smallest_budget - kPage).vn_major);
  EXPECT_GT(at_need(whole.smallest_budget - kPage).shards.size(), 1u);
  EXPECT_FALSE(
      partition(model, profile, {}, whole.smallest_budget - kPage, OrderChoice::vn_major, true)
          .fits);
}

TEST(Partition, AgreesWithAnExhaustiveSearch) {
  const std::uint64_t seeds = campaign_size(200, 30);
  std::uint64_t spilled = 0, reserved = 0, behind_frozen = 0;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    RandomJob job(seed);
    if (job.model.layers.size() > 12) continue;  // too many cuts
    if (seed % 3 == 0) job.shape.split.activation_share = 0.1 * static_cast<double>(seed % 9 + 1);
    const EveryCut every(job);
    for (const bool double_buffer : {false, true}) {
      const Bytes smallest = job.cut(0, double_buffer).smallest_budget;
      EXPECT_EQ(smallest, every.smallest_budget());
      const Bytes ahead = job.cut(0, double_buffer).load_ahead_budget;
      EXPECT_EQ(ahead, double_buffer ? every.load_ahead_budget() : 0);
      EXPECT_EQ(smallest % kPage, 0u);
      for (const Bytes budget : {smallest - kPage, smallest, smallest + smallest / 3, 2 * smallest,
                                 std::max(ahead, kPage) - kPage, ahead}) {
        const Partition cut = job.cut(budget, double_buffer);
        EXPECT_EQ(cut.shards, every.shards(budget, double_buffer));
        behind_frozen += cut.shards.size() > 1 && cut.shards[1].begin == every.trained() ? 1u : 0u;
        EXPECT_EQ(cut.fits, budget >= smallest);
        spilled += cut.shards.size() > 2 ? 1u : 0u;
        reserved += cut.shards != job.cut(budget, false).shards ? 1u : 0u;
      }
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(spilled, 3 * seeds / 4);
  EXPECT_GT(reserved, 3 * seeds / 4);
  EXPECT_GT(behind_frozen, seeds / 4);
}

/// A large frozen first layer that the last layer uses too, such as an embedding.
TEST(Partition, CutsBehindFrozenLayersIfThatSavesCopies) {
  ModelSpec model = chain(8);
  model.params[0].tensor.dims[0].size = 6 * 4096;
  model.layers.back().params.push_back(0);
  const auto first_cut = [&](bool frozen) {
    model.params[0].trainable = !frozen;
    model.edges[1].differentiable = !frozen;
    const Bytes least = least_budget(model, {});
    const Partition cut = partition(model, profile_of(model), {}, least + 6 * 4 * 4096,
                                    OrderChoice::shard_major, /*double_buffer=*/false);
    return cut.shards.front().end;
  };
  EXPECT_GT(first_cut(/*frozen=*/false), 1);
  EXPECT_EQ(first_cut(/*frozen=*/true), 1);
}

/// An algorithm of quadratic or higher cost takes more minutes than a test may.
TEST(Partition, CutsTwoThousandLayers) {
  const ModelSpec model = chain(2048);
  const Profile profile = profile_of(model);
  const JobShape shape{.virtual_nodes = 4};
  for (const Bytes part : {Bytes{1}, Bytes{4}, Bytes{400}}) {
    const Bytes budget =
        part * partition(model, profile, shape, 0, OrderChoice::shard_major, true).smallest_budget;
    const Partition cut = partition(model, profile, shape, budget, OrderChoice::shard_major, true);
    expect_cover(cut.shards, 2048);
    const JobPlan plan = lower(model, profile, shape, cut.shards, false);
    EXPECT_EQ(plan.strategy.stages.size(), cut.shards.size());
  }
}

TEST(Partition, FitsEveryUnitAndCutsLessWithMoreBudget) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomJob job(seed);
    const auto cut = [&](Bytes budget) { return job.cut(budget, false); };
    const Bytes smallest = cut(0).smallest_budget;
    std::size_t fewest = job.model.layers.size();
    for (Bytes budget = smallest; budget < 4 * smallest; budget += smallest / 3) {
      const Partition result = cut(budget);
      expect_cover(result.shards, static_cast<int>(job.model.layers.size()));
      for (LayerRange shard : result.shards) {
        EXPECT_LE(unit_need(job.model, job.profile, job.shape, shard).total(), budget);
      }
      // A cut behind frozen layers saves copies, not shards.
      if (!has_backward(job.model, job.model.layers.front())) continue;
      EXPECT_LE(result.shards.size(), fewest);
      fewest = result.shards.size();
    }
  }
}

/// A job of two hosts with four virtual nodes each, 400,000 bytes of sums for each of 8 layers.
struct HostsJob {
  std::vector<LayerRange> shards(double exchange_s, Bytes budget = kAmple) const {
    return shards_for_exchange(NeedTable(model, profile, shape), shape, budget, exchange_s);
  }
  double step_s(const std::vector<LayerRange>& shards, double network_bytes_per_s) const {
    const Strategy strategy = data_parallel(shards, lane_ranges(shape), /*stay=*/true);
    const auto cost =
        step_cost(std::make_shared<JobPlan>(lower(model, profile, shape, strategy)),
                  {.device_budgets = {kAmple}, .host_budget = 1_GiB, .policy = make_policy("fifo")},
                  {.network_bytes_per_s = network_bytes_per_s});
    return cost.value().step_s;
  }

  ModelSpec model = chain(8, 100'000);
  Profile profile = profile_of(model);
  JobShape shape{.virtual_nodes = 8,
                 .groups = 4,
                 .lane_groups = {2},
                 .max_steps = kPricedSteps,
                 .host_groups = {2, 2}};
};

TEST(ShardsForExchange, AreAsManyAsPay) {
  const HostsJob job;
  EXPECT_EQ(job.shards(0.011).size(), 1u) << "3.7 would be best";
  EXPECT_EQ(job.shards(0.016), (std::vector<LayerRange>{{0, 2}, {2, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(job.shards(0.3).size(), 8u);
}

/// Layers without sums are part of the shard before them, or of the first one.
TEST(ShardsForExchange, DivideTheSums) {
  HostsJob job;
  for (std::size_t frozen : {0u, 1u, 2u, 5u}) job.model.params[frozen].trainable = false;
  EXPECT_EQ(job.shards(0.3), (std::vector<LayerRange>{{0, 4}, {4, 6}, {6, 7}, {7, 8}}));
}

TEST(ShardsForExchange, NeedRoomForAllGraphs) {
  HostsJob job;
  const std::vector<LayerRange> whole{{0, 8}};
  const Bytes weights_and_sums = 8 * (400'000 + 2 * 400'000);  // two groups: two slots of sums
  EXPECT_EQ(job.shards(0.016, 2 * weights_and_sums), whole);
  EXPECT_EQ(job.shards(0.016, 2 * weights_and_sums + 128_KiB).size(), 4u);
  job.model.layers[1].keeps_graph = false;
  EXPECT_EQ(job.shards(0.016), whole);
  job.model.layers[1].keeps_graph = true;
  job.shape.split.activation_share = 0.5;
  EXPECT_EQ(job.shards(0.016), whole);
}

/// On the virtual clock.
TEST(ShardsForExchange, HideTheExchange) {
  const HostsJob job;
  constexpr double kRate = 1e8;
  EXPECT_LT(job.step_s(job.shards(0.03), kRate), 0.8 * job.step_s({{0, 8}}, kRate));
}

}  // namespace
}  // namespace spillway
