#include <gtest/gtest.h>

#include <utility>

#include "tests/support/models/small_resnet.h"

/// Weights, running statistics and losses of a residual network with dropout and augmentation do
/// not depend on where it is computed. The hash of the weights covers the statistics too.
namespace spillway::testing {
namespace {

const RunResult& resident() {
  static const RunResult result = train(session_of(1, kAmple), resnet_trial());
  return result;
}

TEST(ResnetExactness, HoldsTheWholeModelInAResidentRun) {
  EXPECT_EQ(resident().trials[0].num_shards, 1);
  EXPECT_EQ(resident().trials[0].order, "vn_major");
  EXPECT_EQ(total(resident(), &DeviceResult::evictions), 0u);
  EXPECT_LT(resident().trials[0].losses.back(), resident().trials[0].losses.front());
  expect_within_budgets(resident());
  expect_same_bits(train(session_of(1, kAmple), resnet_trial()).trials[0], resident().trials[0]);
}

TEST(ResnetExactness, KeepsItsBitsAtEveryBudget) {
  const Bytes smallest = smallest_budget(resnet_trial());
  int shards = 1000;
  for (const Bytes percent : {100u, 125u, 160u}) {
    const RunResult spilled = train(session_of(1, smallest * percent / 100), resnet_trial());
    EXPECT_GT(spilled.trials[0].num_shards, 1);
    EXPECT_LT(spilled.trials[0].num_shards, shards);
    shards = spilled.trials[0].num_shards;
    EXPECT_GT(spilled.h2d_weight_bytes, resident().h2d_weight_bytes);
    expect_within_budgets(spilled);
    expect_same_bits(spilled.trials[0], resident().trials[0]);
  }
}

TEST(ResnetExactness, HasTheSameBitsInBothOrders) {
  TrialConfig trial = resnet_trial();
  trial.train.order = OrderChoice::shard_major;
  const RunResult one_shard = train(session_of(1, kAmple), trial);
  EXPECT_EQ(one_shard.trials[0].order, "shard_major");
  expect_same_bits(one_shard.trials[0], resident().trials[0]);
}

/// Batches of 16 and more use other kernels, and pictures of one pixel or one channel look the same
/// in several memory formats.
TEST(ResnetExactness, KeepsItsBitsForEveryPictureShape) {
  ResnetConfig one_pixel = small_resnet();
  one_pixel.hidden_sizes = {4, 1, 3, 5};
  one_pixel.depths = {1, 1, 1, 1};
  ResnetConfig one_channel = small_resnet();
  one_channel.hidden_sizes = {1, 2};
  for (const auto& [model, vn_size] :
       {std::pair{one_pixel, 2}, {one_pixel, 16}, {one_channel, 3}, {small_resnet(), 16}}) {
    const TrialConfig trial = resnet_trial(model, vn_size);
    const RunResult whole = train(session_of(1, kAmple), trial);
    const RunResult spilled = train(session_of(1, smallest_budget(trial)), trial);
    EXPECT_EQ(whole.trials[0].num_shards, 1);
    EXPECT_GT(spilled.trials[0].num_shards, 2);
    expect_within_budgets(spilled);
    expect_same_bits(spilled.trials[0], whole.trials[0]);
  }
}

TEST(ResnetControl, DiffersForAnotherOrderOfStatistics) {
  TrialConfig trial = still_trial(1), other = trial;
  other.train.reduction_groups = 1;  // from the left
  const Trained a = train_to_file(session_of(1, kAmple), trial);
  const Trained b = train_to_file(session_of(1, kAmple), other);
  EXPECT_NE(a.run.trials[0].weights_xxh3, b.run.trials[0].weights_xxh3);
  bool differs = false;
  for (const auto& [name, value] : a.values) {
    EXPECT_TRUE(torch::allclose(value, b.values.at(name), 1e-5, 1e-6)) << name;
    const bool same = value.equal(b.values.at(name));
    EXPECT_TRUE(same || is_statistic(name)) << name;
    differs |= !same;
  }
  EXPECT_TRUE(differs);
}

TEST(ResnetControl, DiffersWithoutDropoutOrAugmentation) {
  TrialConfig no_shift = resnet_trial();
  no_shift.data = made_up_digits(/*augment=*/false);
  TrialConfig other_nodes = resnet_trial();
  other_nodes.train.virtual_nodes = 4;
  for (const TrialConfig& control :
       {resnet_trial(small_resnet(/*dropout=*/0)), no_shift, other_nodes}) {
    expect_other_bits(train(session_of(1, kAmple), control).trials[0], resident().trials[0]);
  }
}

}  // namespace
}  // namespace spillway::testing
