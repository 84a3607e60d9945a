#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "tests/support/models/digits.h"
#include "tests/support/models/plain_resnet.h"
#include "tests/support/models/small_resnet.h"
#include "tests/support/models/training_rows.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"
#include "trainer/compute/initialize.h"

/// Whole runs of residual networks, compared with LibTorch's own modules.
namespace spillway::testing {
namespace {

void set_values(PlainResnet& plain, const TensorMap& values) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, value] : values) plain->value(name).copy_(value);
}

PlainResnet initial_resnet(const ResnetConfig& config, const TrialConfig& trial) {
  PlainResnet plain(config);
  const ModelSpec spec = trial.model(2)->spec;
  const torch::NoGradGuard no_grad;
  for (std::size_t p = 0; p < spec.params.size(); ++p) {
    if (spec.params[p].is_statistic()) continue;
    initialize(plain->value(spec.params[p].name).mutable_data_ptr<float>(), spec.params[p],
               trial.train.seed, p);
  }
  return plain;
}

/// One virtual node per step: exactly what torch::nn::BatchNorm2d does.
TEST(Resnet, HasTheRunningStatisticsOfPlainTraining) {
  for (const bool spilled : {false, true}) {
    TrialConfig trial = still_trial(/*steps=*/5);
    trial.train.virtual_nodes = trial.train.reduction_groups = 1;
    const Trained ours =
        train_to_file(session_of(1, spilled ? smallest_budget(trial) : kAmple), trial);
    EXPECT_EQ(ours.run.trials[0].num_shards > 1, spilled);
    PlainResnet plain = initial_resnet(small_resnet(), trial);
    for (std::int64_t step = 0; step < 5; ++step)
      plain->loss(rows_of(trial, step * trial.train.batch_size, trial.train.batch_size));
    EXPECT_EQ(ours.values.size(), plain->parameters().size() + plain->buffers().size());
    for (const auto& [name, value] : ours.values) {
      EXPECT_EQ(value.scalar_type(), plain->value(name).scalar_type()) << name;
      EXPECT_TRUE(torch::allclose(value, plain->value(name), 1e-5, 1e-6)) << name;
    }
    EXPECT_EQ(ours.values.at("bn1.num_batches_tracked").item<std::int64_t>(), 5);
  }
}

/// The mean over virtual nodes, one update per step.
TEST(Resnet, AveragesRunningStatisticsOverVirtualNodes) {
  const TrialConfig trial = still_trial(/*steps=*/3);
  const Trained ours = train_to_file(session_of(1, smallest_budget(trial)), trial);
  PlainResnet plain = initial_resnet(small_resnet(), trial);
  TensorMap expected;
  for (const auto& buffer : plain->named_buffers())
    expected[buffer.key()] = buffer->to(torch::kDouble);
  for (std::int64_t step = 0; step < 3; ++step) {
    const TensorMap before = expected;
    for (auto& [name, value] : expected) value = torch::zeros_like(value);
    for (std::int64_t vn = 0; vn < 8; ++vn) {
      set_values(plain, before);
      plain->loss(rows_of(trial, step * 32 + vn * 4, 4));
      for (auto& [name, value] : expected) value = value + plain->value(name) / 8.0;
    }
  }
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(torch::allclose(ours.values.at(name).to(torch::kDouble), value, 1e-4, 1e-5))
        << name;
  }
}

std::vector<double> plain_losses(const ResnetConfig& config, const TrialConfig& trial) {
  PlainResnet plain = initial_resnet(config, trial);
  return plain_training(trial, plain->parameters(), [&](const torch::Tensor& rows) {
    return plain->loss(rows) / rows.size(0);
  });
}

TEST(Resnet, HasTheLossesOfPlainTraining) {
  const ResnetConfig config = small_resnet(/*dropout=*/0);
  TrialConfig trial = resnet_trial(config);
  trial.data = made_up_digits(/*augment=*/false);
  trial.train.optimizer = OptimizerKind::sgd;
  trial.train.learning_rate = 0.05;
  trial.train.weight_decay = trial.train.max_grad_norm = 0;
  trial.train.lr_scheduler_type = LrSchedulerType::constant;
  const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  const auto plain = plain_losses(config, trial);
  ASSERT_EQ(spilled.losses.size(), 10u) << spilled.reason;
  EXPECT_LT(largest_difference(spilled.losses, plain), 1e-3);
  trial.train.learning_rate *= 1.02;  // negative control: a slightly different optimizer shows
  EXPECT_GT(largest_difference(plain_losses(config, trial), plain), 1e-3);
}

TEST(Resnet, EvaluatesWithTheStatisticsOfTheLastCommit) {
  TrialConfig trial = resnet_trial();
  const Trained ours = train_to_file(session_of(1, smallest_budget(trial)), trial);
  PlainResnet plain(small_resnet());
  set_values(plain, ours.values);
  const torch::NoGradGuard no_grad;
  const auto rows = rows_of(trial, 0, 32, /*evaluation=*/true);
  const double in_training = plain->loss(rows).item<double>() / 32;
  set_values(plain, ours.values);
  plain->eval();
  const double expected = plain->loss(rows).item<double>() / 32;
  EXPECT_NEAR(*ours.run.trials[0].eval_loss, expected, 1e-4);
  EXPECT_GT(std::abs(in_training - expected), 1e-3);
}

TEST(Resnet, UpdatesStatisticsOfFrozenLayers) {
  ResnetConfig config = small_resnet();
  config.freeze = {"conv1.*", "bn1.*"};
  const TrialConfig trial = resnet_trial(config);
  const Trained resident = train_to_file(session_of(1, kAmple), trial);
  const Trained spilled = train_to_file(session_of(1, smallest_budget(trial)), trial);
  expect_same_bits(spilled.run.trials[0], resident.run.trials[0]);
  PlainResnet initial = initial_resnet(config, trial);
  for (const char* name : {"conv1.weight", "bn1.weight", "bn1.bias"})
    EXPECT_TRUE(resident.values.at(name).equal(initial->value(name))) << name;
  for (const char* name : {"bn1.running_mean", "bn1.running_var", "layer1.0.conv1.weight"})
    EXPECT_FALSE(torch::allclose(resident.values.at(name), initial->value(name), 1e-2)) << name;
}

/// Batches of 16 and more use other kernels, and pictures of one pixel or one channel look the same
/// in several memory formats.
TEST(Resnet, KeepsItsBitsForEveryPictureShape) {
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
  for (const auto& [name, value] : a.values) {
    EXPECT_TRUE(torch::allclose(value, b.values.at(name), 1e-5, 1e-6)) << name;
    EXPECT_TRUE(value.equal(b.values.at(name)) || is_statistic(name)) << name;
  }
}

TEST(ResnetControl, DiffersWithoutDropoutOrAugmentation) {
  const RunResult resident = train(session_of(1, kAmple), resnet_trial());
  TrialConfig no_shift = resnet_trial();
  no_shift.data = made_up_digits(/*augment=*/false);
  for (const TrialConfig& control : {resnet_trial(small_resnet(/*dropout=*/0)), no_shift}) {
    expect_other_bits(train(session_of(1, kAmple), control).trials[0], resident.trials[0]);
  }
}

/// The sum beside the gradients and the value beside the weights; neither moments nor more.
TEST(Resnet, CountsStatisticsInThePlan) {
  const TrialConfig trial = resnet_trial();
  Session session(session_of(1, kAmple));
  const TrialPlan& plan = session.plan(session.submit(trial));
  Bytes weights = 0, moments = 0, sums = 0;
  const ModelSpec spec = trial.model(4)->spec;
  for (const ParamSpec& param : spec.params) {
    const Bytes bytes = round_up(param.tensor.bytes(), kAlignment);
    weights += bytes;
    moments += param.trainable ? 2 * bytes : 0;
    sums += param.trainable || param.is_observed() ? bytes : 0;
  }
  const Bytes rounding = kPage * spec.layers.size();  // layers begin at pages
  const auto expect_about = [&](Bytes planned, Bytes bytes) {
    EXPECT_GE(planned, bytes);
    EXPECT_LE(planned, bytes + rounding);
  };
  expect_about(plan.home_weights_bytes, weights);
  expect_about(plan.home_moments_bytes, moments);
  expect_about(plan.home_sums_bytes, sums);
  EXPECT_EQ(plan.unit_weights_bytes, weights);
}

TEST(Resnet, LearnsDigits) {
  const auto file = digits_file();
  if (!file) GTEST_SKIP() << kNoDigits;
  ResnetConfig model = small_resnet();
  TrialConfig trial = resnet_trial(model);
  trial.data = std::make_shared<const DataSplit>([&] {
    DataSplit digits = open_digits({*file}, 0.2);
    digits.augment = shift_pictures(8, 8);
    return digits;
  }());
  trial.train.batch_size = 64;
  trial.train.virtual_nodes = trial.train.reduction_groups = 4;
  trial.train.max_steps = 200;
  trial.train.learning_rate = 1e-2;
  trial.train.eval_steps = 0;
  trial.train.eval_batches = 100;
  const Trained ours = train_to_file(session_of(1, smallest_budget(trial)), trial);
  EXPECT_GT(ours.run.trials[0].num_shards, 1);
  EXPECT_LT(*ours.run.trials[0].eval_loss, 0.2);
  PlainResnet plain(model);
  set_values(plain, ours.values);
  plain->eval();
  const auto samples = static_cast<std::int64_t>(trial.data->eval->num_samples());
  const auto rows = rows_of(trial, 0, samples, /*evaluation=*/true);
  const auto right = plain->logits(rows).argmax(1).eq(rows.select(1, 64));
  EXPECT_GT(right.to(torch::kFloat).mean().item<float>(), 0.93);
}

}  // namespace
}  // namespace spillway::testing
