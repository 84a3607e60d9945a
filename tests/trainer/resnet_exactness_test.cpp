#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/support/small_resnet.h"
#include "tests/support/wrapped_model.h"

/// Weights, running statistics and losses of a residual network with dropout and augmentation do
/// not depend on where it is computed. The hash of the weights is over the statistics too.
namespace spillway::testing {
namespace {

const RunResult& resident() {
  static const RunResult result = train(session_of(1, kAmple), resnet_trial());
  return result;
}

TrialConfig with_lanes(TrialConfig trial, std::vector<int> lane_groups) {
  trial.train.lanes = static_cast<int>(lane_groups.size());
  trial.train.lane_groups = std::move(lane_groups);
  return trial;
}

TEST(ResnetExactness, ResidentRunHoldsTheWholeModel) {
  EXPECT_EQ(resident().trials[0].num_shards, 1);
  EXPECT_EQ(resident().trials[0].order, "vn_major");
  EXPECT_EQ(total(resident(), &DeviceResult::evictions), 0u);
  EXPECT_LT(resident().trials[0].losses.back(), resident().trials[0].losses.front());
  expect_within_budgets(resident());
  expect_same_bits(train(session_of(1, kAmple), resnet_trial()).trials[0], resident().trials[0]);
}

TEST(ResnetExactness, EveryBudget) {
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

TEST(ResnetExactness, ShardMajorIsVnMajor) {
  TrialConfig trial = resnet_trial();
  trial.train.order = "shard_major";
  const RunResult one_shard = train(session_of(1, kAmple), trial);
  EXPECT_EQ(one_shard.trials[0].order, "shard_major");
  expect_same_bits(one_shard.trials[0], resident().trials[0]);
}

TEST(ResnetExactness, LanesOfAnySize) {
  const Bytes smallest = smallest_budget(resnet_trial());
  for (const auto& lane_groups : {std::vector{2, 2}, {3, 1}, {1, 3}, {1, 2, 1}}) {
    for (const Bytes budget : {smallest, kAmple}) {
      const auto devices = static_cast<int>(lane_groups.size());
      const RunResult lanes =
          train(session_of(devices, budget), with_lanes(resnet_trial(), lane_groups));
      for (const DeviceResult& device : lanes.devices) EXPECT_GT(device.ops, 0u);
      EXPECT_EQ(lanes.trials[0].num_shards > 1, budget == smallest);
      expect_within_budgets(lanes);
      expect_same_bits(lanes.trials[0], resident().trials[0]);
    }
  }
}

TEST(ResnetExactness, AmongOtherJobs) {
  std::vector<TrialConfig> trials(3, resnet_trial());
  trials[0].train.seed = 77;
  const RunResult shared = train(session_of(2, smallest_budget(resnet_trial()) * 5 / 4), trials);
  expect_same_bits(shared.trials[1], resident().trials[0]);
  expect_same_bits(shared.trials[2], resident().trials[0]);
  EXPECT_NE(shared.trials[0].weights_xxh3, shared.trials[1].weights_xxh3);
}

/// Batches of 16 and more go to other kernels, and pictures of one pixel or one channel look the
/// same in several memory formats.
TEST(ResnetExactness, EveryShapeOfPictures) {
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

/// What a trainer computes whose statistics are those of its last device.
class LastDeviceOnly final : public Layer {
 public:
  LastDeviceOnly(std::unique_ptr<Layer> layer, std::uint32_t first_vn)
      : layer_(std::move(layer)), first_vn_(first_vn) {}
  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext& context) const override {
    LayerResult result = layer_->forward(inputs, params, context);
    for (at::Tensor& observation : result.observations) {
      observation = observation * (context.random.vn < first_vn_ ? 0 : 2);
    }
    return result;
  }

 private:
  std::unique_ptr<Layer> layer_;
  std::uint32_t first_vn_;
};

TEST(ResnetControl, StatisticsKeptPerDeviceDiffer) {
  TrialConfig trial = still_trial(1);
  const Trained whole = train_to_file(session_of(1, kAmple), trial);
  trial.model = [make = trial.model](std::int64_t vn_size) {
    auto model = make(vn_size);
    for (auto& layer : model->layers) layer = std::make_unique<LastDeviceOnly>(std::move(layer), 4);
    return model;
  };
  const Trained last = train_to_file(session_of(1, kAmple), trial);
  EXPECT_NE(last.run.trials[0].weights_xxh3, whole.run.trials[0].weights_xxh3);
  EXPECT_EQ(last.run.trials[0].losses, whole.run.trials[0].losses);
  EXPECT_NE(last.run.trials[0].eval_losses, whole.run.trials[0].eval_losses);
  for (const auto& [name, value] : whole.values)
    EXPECT_EQ(value.equal(last.values.at(name)), name.find("running_") == std::string::npos);
}

TEST(ResnetControl, StatisticsFoldedInAnotherOrderDiffer) {
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

TEST(ResnetControl, RandomNumbersPerDeviceDiffer) {
  const auto by_device = [](const TrialConfig& trial) {
    struct Threads {
      std::mutex mutex;
      std::map<std::thread::id, std::uint64_t> numbers;
    };
    return with_before(trial, [threads = std::make_shared<Threads>()](LayerContext& context) {
      const std::lock_guard lock(threads->mutex);
      auto& numbers = threads->numbers;
      context.random.seed +=
          numbers.try_emplace(std::this_thread::get_id(), numbers.size()).first->second;
    });
  };
  const RunResult lanes =
      train(session_of(2, kAmple), with_lanes(by_device(resnet_trial()), {2, 2}));
  const RunResult alone = train(session_of(1, kAmple), by_device(resnet_trial()));
  expect_same_bits(train(session_of(1, kAmple), by_device(resnet_trial())).trials[0],
                   alone.trials[0]);
  expect_other_bits(lanes.trials[0], alone.trials[0]);
}

TEST(ResnetControl, DropoutAndAugmentationArePartOfTheResult) {
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
