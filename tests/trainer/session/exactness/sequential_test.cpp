#include <gtest/gtest.h>
#include <torch/torch.h>

#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"
#include "trainer/profile/pilot.h"

/// Models of a user's own as whole runs.
namespace spillway::testing {
namespace {

class Net : public ::testing::TestWithParam<SmallNet> {};

TEST_P(Net, KeepsTheBitsOfAResidentRunWhenSpilledOverLanes) {
  TrialConfig trial = net_trial(GetParam());
  const RunResult resident = train(session_of(1, kAmple), trial);
  ASSERT_EQ(resident.trials[0].state, TrialState::done) << resident.trials[0].reason;
  EXPECT_EQ(resident.trials[0].num_shards, 1);
  EXPECT_EQ(resident.trials[0].order, "vn_major");

  const Bytes budget = smallest_budget(trial);
  EXPECT_LT(budget, resident.trials[0].training_state_bytes);
  const RunResult spilled = train(session_of(1, budget), trial);
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  EXPECT_GT(spilled.h2d_weight_bytes, resident.h2d_weight_bytes);
  expect_same_bits(spilled.trials[0], resident.trials[0]);

  trial.train.data_parallel = 2;
  for (const Bytes lane_budget : {budget, kAmple}) {
    const RunResult lanes = train(session_of(2, lane_budget), trial);
    for (const DeviceResult& device : lanes.devices) EXPECT_GT(device.ops, 0u);
    expect_within_budgets(lanes);
    expect_same_bits(lanes.trials[0], resident.trials[0]);
  }
  trial.train.seed = 4;  // the control
  expect_other_bits(train(session_of(2, kAmple), trial).trials[0], resident.trials[0]);
}

/// With nothing but LibTorch.
std::vector<double> plain_losses(const SmallNet& net, const TrialConfig& trial) {
  torch::manual_seed(trial.train.seed);
  auto model = net.make();
  return plain_training(trial, model->parameters(), [&](const torch::Tensor& rows) {
    std::vector<std::int64_t> shape{rows.size(0)};
    shape.insert(shape.end(), net.config.input_shape.begin(), net.config.input_shape.end());
    const std::int64_t targets = net.config.loss == "mse" ? 3 : 1, inputs = rows.size(1) - targets;
    const auto output = model->forward(rows.narrow(1, 0, inputs).reshape(shape));
    const auto target = rows.narrow(1, inputs, targets);
    if (targets > 1) return torch::mse_loss(output, target);
    return torch::cross_entropy_loss(output, target.squeeze(1).to(torch::kInt64));
  });
}

TEST_P(Net, HasTheLossesOfPlainTraining) {
  TrialConfig trial = net_trial(GetParam());
  const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  const auto plain = plain_losses(GetParam(), trial);
  ASSERT_EQ(spilled.losses.size(), 10u) << spilled.reason;
  EXPECT_LT(largest_difference(spilled.losses, plain), 1e-4);
  EXPECT_LT(plain.back(), 0.95 * plain.front());

  trial.train.learning_rate *= 1.01;  // the control: a slightly different optimizer shows
  EXPECT_GT(largest_difference(plain_losses(GetParam(), trial), plain), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Sequential, Net, ::testing::ValuesIn(small_nets()),
                         [](const auto& test) { return test.param.name; });

TEST(Sequential, LeavesTheGlobalGeneratorAlone) {
  TrialConfig trial = net_trial(small_nets()[0]);
  trial.train.max_steps = 2;
  torch::manual_seed(11);
  const auto expected = torch::rand({4});
  torch::manual_seed(11);
  const auto first = train(session_of(1, kAmple), trial).trials[0];
  EXPECT_TRUE(torch::rand({4}).equal(expected));
  torch::manual_seed(12);  // and does not depend on it
  EXPECT_EQ(train(session_of(1, kAmple), trial).trials[0].weights_xxh3, first.weights_xxh3);
}

TEST(Sequential, KeepsTheWeightsOfFrozenChildren) {
  SmallNet net = small_nets()[0];
  net.make = [] {
    auto model = conv_net();
    for (const auto& param : model->parameters()) {
      if (param.dim() == 4) param.requires_grad_(false);  // both convolutions, without biases
    }
    return model;
  };
  TrialConfig trial = net_trial(net);
  const auto model = trial.model(2);
  for (const ParamSpec& param : model->spec.params)
    EXPECT_EQ(param.trainable, param.tensor.dims.size() != 4) << param.name;
  const auto resident = train(session_of(1, kAmple), trial).trials[0];
  expect_same_bits(train(session_of(1, smallest_budget(trial)), trial).trials[0], resident);
  EXPECT_LT(largest_difference(resident.losses, plain_losses(net, trial)), 1e-4);
}

/// With one sample, part of a row has no gaps but begins anywhere, and alignment decides bits.
TEST(Sequential, KeepsItsBitsWhereALayerGivesAPartOfItsMemory) {
  SmallNet net = small_nets()[3];
  net.make = [] {
    using namespace torch::nn;
    const Functional part([](const torch::Tensor& x) { return x.narrow(1, 2, 67); });
    return Sequential(Linear(12, 70), part, Linear(67, 33), Linear(33, 64), Linear(64, 3));
  };
  TrialConfig trial = net_trial(net);
  trial.train.virtual_nodes = static_cast<int>(trial.train.batch_size);
  const auto resident = train(session_of(1, kAmple), trial).trials[0];
  const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  EXPECT_GT(spilled.num_shards, 2);
  expect_same_bits(spilled, resident);
}

SmallNet counted(int& calls) {
  static int* counter;
  counter = &calls;
  SmallNet net = small_nets()[3];
  net.make = [] {
    ++*counter;
    return regression_net();
  };
  return net;
}

TEST(Sequential, MakesAModelOnceToSubmitItAndOnceToStart) {
  int calls = 0;
  TrialConfig trial = net_trial(counted(calls));
  trial.train.max_steps = 2;
  Session session(session_of(1, kAmple));
  session.submit(trial);
  EXPECT_EQ(calls, 1);
  session.run();
  EXPECT_EQ(session.result().trials[0].state, TrialState::done);
  EXPECT_EQ(calls, 2);
}

/// In a later process a client makes its models in another order.
TEST(Sequential, DescribesATrialAlikeWhicheverModelsWereMadeBefore) {
  const TemporaryFolder folder;
  const auto trial_of = [](std::size_t net) {
    TrialConfig trial = net_trial(small_nets()[net]);
    trial.client_id = trial.name;
    return trial;
  };
  {
    Session session(session_of(1, kAmple));
    session.keep_journal(folder.path());
    for (const std::size_t net : {0u, 2u, 3u}) session.submit(trial_of(net));
  }
  Session session(session_of(1, kAmple));
  session.keep_journal(folder.path());
  for (const std::size_t net : {3u, 0u, 2u}) {
    for (const auto& change : session.changes(trial_of(net))) ADD_FAILURE() << to_string(change);
  }
  TrialConfig other = trial_of(1);
  other.client_id = trial_of(0).client_id;
  EXPECT_FALSE(session.changes(other).empty()) << "the control";
}

TEST(Sequential, MeasuresAnotherModuleOfTheSameShapes) {
  const TemporaryFolder folder;
  const auto model_of = [](const auto& activation) {
    const auto make = [=] {
      return torch::nn::Sequential(torch::nn::Linear(8, 8), activation, torch::nn::Linear(8, 4));
    };
    return sequential_factory(make, {.input_shape = {8}})(2);
  };
  const auto relu = model_of(torch::nn::ReLU()), tanh = model_of(torch::nn::Tanh());
  const auto quiet = [] { return 0.0; };  // costs of a busy machine would not stay known
  Pilot(folder / "pilot.json", quiet).measure(*relu);
  const Pilot pilot(folder / "pilot.json", quiet);
  EXPECT_TRUE(pilot.knows(model_of(torch::nn::ReLU())->spec, nullptr));
  EXPECT_FALSE(pilot.knows(tanh->spec, nullptr));
}

TEST(Sequential, RefusesDataOfAnotherKind) {
  TrialConfig trial = net_trial(small_nets()[0]);
  trial.data = net_trial(small_nets()[2]).data;
  Session session(session_of(1, kAmple));
  EXPECT_STREQ(thrown<ConfigError>([&] { session.submit(trial); }).what(),
               "data: samples have 7 int64 values, model sequential expects 65 float32 values");
}

TEST(Sequential, RefusesABatchNormOfOneValueWithARemedy) {
  TrialConfig trial = net_trial({"norm", &norm_net, {.input_shape = {1, 8, 8}}});
  trial.train.batch_size = trial.train.virtual_nodes;
  Session session(session_of(1, kAmple));
  const std::string reason = thrown<Error>([&] { session.submit(trial); }).what();
  EXPECT_NE(reason.find("raise train.batch_size or lower train.virtual_nodes"), std::string::npos)
      << reason;
}

}  // namespace
}  // namespace spillway::testing
