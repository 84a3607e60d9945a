#include "scheduler/partition.h"

#include <gtest/gtest.h>

#include "tests/support/random_workload.h"
#include "tests/support/small_model.h"

namespace spillway {
namespace {

using testing::chain;
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

/// A random model and what a step of it is.
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

TEST(Partition, WholeModelsRunVnMajor) {
  const ModelSpec model = chain(5);
  const Partition cut =
      partition(model, profile_of(model), {}, kAmple, OrderChoice::automatic, true);
  EXPECT_TRUE(cut.fits && cut.vn_major);
  EXPECT_EQ(cut.shards, (std::vector<LayerRange>{{0, 5}}));
}

TEST(Partition, OneByteLessThanWholeIsCut) {
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

TEST(Partition, TheSmallestBudgetIsTheSmallest) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomJob job(seed);
    for (const bool double_buffer : {false, true}) {
      const auto cut = [&](Bytes budget) { return job.cut(budget, double_buffer); };
      const Bytes smallest = cut(0).smallest_budget;
      EXPECT_EQ(smallest % kPage, 0u);
      EXPECT_TRUE(cut(smallest).fits);
      EXPECT_FALSE(cut(smallest - kPage).fits);
      EXPECT_TRUE(cut(smallest - kPage).shards.empty());
    }
  }
}

TEST(Partition, EveryUnitFitsAndMoreBudgetNeverCutsMore) {
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
      EXPECT_LE(result.shards.size(), fewest);
      fewest = result.shards.size();
    }
  }
}

TEST(Partition, BothPartsOfTheMemoryHaveRoomWhereActivationsLieApart) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomJob job(seed);
    job.shape.split = {0.1 * static_cast<double>(seed % 9 + 1)};
    const auto cut = [&](Bytes budget) { return job.cut(budget, seed % 2 == 0); };
    const Bytes smallest = cut(0).smallest_budget;
    EXPECT_FALSE(cut(smallest - kPage).fits);
    for (Bytes budget = smallest; budget < 4 * smallest; budget += smallest / 3) {
      const NeedTable table(job.model, job.profile, job.shape);
      for (LayerRange shard : cut(budget).shards) {
        const RangeNeed need = range_need(table, shard);
        for (const UnitNeed& unit : {need.forward(), need.backward()}) {
          EXPECT_LE(unit.planned(), job.shape.split.planned(budget));
          EXPECT_LE(unit.workspace, job.shape.split.activations(budget));
        }
      }
    }
  }
}

TEST(Partition, DoubleBufferLeavesRoomForAnotherShard) {
  const ModelSpec model = chain(12);
  const Profile profile = profile_of(model);
  const Bytes budget =
      2 * partition(model, profile, {}, 0, OrderChoice::shard_major, true).smallest_budget;
  const auto single = partition(model, profile, {}, budget, OrderChoice::shard_major, false);
  const auto both = partition(model, profile, {}, budget, OrderChoice::shard_major, true);
  EXPECT_GT(both.shards.size(), single.shards.size());
  Bytes largest = 0;
  for (LayerRange shard : both.shards)
    largest = std::max(largest, testing::weights_bytes(model, shard));
  for (LayerRange shard : both.shards) {
    EXPECT_LE(unit_need(model, profile, {}, shard).total() + largest, budget);
  }
}

TEST(Partition, FromTheLoadAheadBudgetOnTheNextWeightsHaveRoom) {
  int differ = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const RandomJob job(seed);
    const auto cut = [&](Bytes budget, bool double_buffer) {
      return job.cut(budget, double_buffer);
    };
    const Bytes least = cut(0, true).load_ahead_budget;
    const Partition ahead = cut(least, true);
    Bytes most = 0;
    for (LayerRange s : ahead.shards) most = std::max(most, testing::weights_bytes(job.model, s));
    for (LayerRange s : ahead.shards) {
      EXPECT_LE(unit_need(job.model, job.profile, job.shape, s).total() + most, least);
    }
    differ += ahead.shards != cut(least, false).shards;
    EXPECT_EQ(cut(least - kPage, true).shards, cut(least - kPage, false).shards);
    EXPECT_EQ(cut(least, false).load_ahead_budget, 0u);
  }
  EXPECT_GT(differ, 100);
}

}  // namespace
}  // namespace spillway
