#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "spillway/error.h"
#include "spillway/exported.h"
#include "spillway/weights.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_transformer.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"
#include "tests/support/run/watched_session.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/compute/trial_state.h"

/// Models that PyTorch exported as whole runs.
namespace spillway::testing {
namespace {

class Exported : public ::testing::Test {
 protected:
  TrialConfig trial_of(const ExportedNet& net) const {
    const auto file = folder_.path() / "net.spw";
    net.write(file);
    return exported_trial(file);
  }

  const TemporaryFolder folder_;
};

TEST_F(Exported, KeepsTheBitsOfAResidentRunWhenSpilledOverLanes) {
  const TrialConfig trial = trial_of(exported_net());
  const TrialResult resident = train(session_of(1, kAmple), trial).trials[0];
  expect_same_bits_when_spilled(trial, resident);
  EXPECT_EQ(resident.eval_metrics.size(), 2u);
}

/// The control: masks and statistics of other virtual nodes.
TEST_F(Exported, HasOtherBitsForOtherVirtualNodes) {
  TrialConfig trial = trial_of(exported_net());
  const auto four = train(session_of(1, kAmple), trial).trials[0];
  ExportedNet larger = exported_net();
  larger.document["batch_size"] = 2 * kNetBatch;
  for (json& layer : larger.document["layers"]) layer["output"]["shape"][0] = 2 * kNetBatch;
  trial.model = trial_of(larger).model;
  trial.train.virtual_nodes = 2;
  expect_other_bits(train(session_of(1, kAmple), trial).trials[0], four);
}

TEST_F(Exported, KeepsTheBitsOfItsPieces) {
  const auto file = folder_.path() / "transformer.spw";
  exported_transformer({.attention_dropout = 0.25, .residual_dropout = 0.25}).write(file);
  TrialConfig trial = exported_trial(file);
  trial.data = transformer_data();
  trial.train.virtual_nodes = static_cast<int>(trial.train.batch_size / 2);
  const auto whole = train(session_of(1, kAmple), trial).trials[0];
  trial.model = exported_factory(file, {.attention = 2, .mlp = 4, .vocabulary = 3});
  const TrialResult resident = train(session_of(1, kAmple), trial).trials[0];
  expect_same_bits_when_spilled(trial, resident);
  expect_other_bits(resident, whole);  // the control: additions have another order
}

/// With nothing but LibTorch.
std::vector<double> exported_plain_losses(const ExportedNet& net, const TrialConfig& trial) {
  std::vector<at::Tensor> p, trained;
  for (const auto& [name, tensor] : net.tensors) p.push_back(tensor.clone());
  for (const std::size_t each : {0u, 1u, 2u, 3u, 7u, 8u}) {
    trained.push_back(p[each].requires_grad_());
  }
  return plain_training(trial, trained, [&](const at::Tensor& rows) {
    auto x = at::tanh(at::linear(rows.narrow(1, 0, kNetInputs), p[0], p[1]));
    x = at::relu(at::batch_norm(x, p[2], p[3], {}, {}, true, 0.1, 1e-5, false));
    for (int body = 0; body < 2; ++body) {
      const auto halves = x.split(kNetWidth / 2, 1);
      x = at::linear(x, p[7]) * 0.5 +
          at::cat({halves[0] * p[10].narrow(0, 0, kNetWidth / 2), halves[1]}, -1);
    }
    return at::cross_entropy_loss(at::linear(x, p[8], p[9]),
                                  rows.select(1, kNetInputs).to(at::kLong), {}, at::Reduction::Mean,
                                  -100, 0.1);
  });
}

TEST_F(Exported, HasTheLossesOfPlainTraining) {
  ExportedNet net = exported_net(/*dropout=*/0);
  net.document["loss"]["ignore_index"] = -100;
  TrialConfig trial = trial_of(net);
  const auto spilled = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  const auto plain = exported_plain_losses(net, trial);
  ASSERT_EQ(spilled.losses.size(), 10u) << spilled.reason;
  EXPECT_LT(largest_difference(spilled.losses, plain), 1e-4);
  EXPECT_LT(plain.back(), 0.95 * plain.front());
  trial.train.learning_rate *= 1.01;  // the control: a slightly different optimizer shows
  EXPECT_GT(largest_difference(exported_plain_losses(net, trial), plain), 1e-4);
}

TEST_F(Exported, MovesStatisticsAndKeepsFrozenWeights) {
  const ExportedNet net = exported_net();
  TrialConfig trial = trial_of(net);
  trial.keep_weights = true;
  Session session(session_of(1, kAmple));
  const JobId id = session.submit(trial);
  session.run();
  const auto weights = session.weights(id);
  const auto weight = [&](const std::string& name) {
    return std::ranges::find(weights, name, &NamedTensor::name)->value;
  };
  EXPECT_TRUE(weight("head.bias").equal(net.tensors[9].second));
  EXPECT_FALSE(weight("body.weight").equal(net.tensors[7].second));
  EXPECT_FALSE(weight("norm.running_mean").equal(at::zeros({kNetWidth})));
  EXPECT_EQ(weight("norm.num_batches_tracked").item<std::int64_t>(), 10);
}

/// The trial after the step at which it stops, or at its end.
TrialResult trained_until(const TrialConfig& trial, std::int64_t stop_at) {
  WatchedSession run(session_of(1, smallest_budget(trial)));
  run.submit_in_lockstep(trial);
  run.run([&](const SessionEvent& event) {
    if (event.kind == SessionEvent::Kind::step && event.step == stop_at) run.session.stop();
  });
  return run.result.trials[0];
}

TEST_F(Exported, ResumesFromCheckpointsWithoutFrozenWeights) {
  ExportedNet net = exported_net();
  TrialConfig trial = trial_of(net);
  const TrialResult whole = train(session_of(1, kAmple), trial).trials[0];
  const auto checkpoints = folder_ / "checkpoints";
  trial.checkpoint = {.folder = checkpoints, .every_steps = 3, .resume = true};
  EXPECT_LT(trained_until(trial, 7).steps, whole.steps);
  const auto newest = CheckpointStore(posix_file_system(), checkpoints).open_newest().generation;
  const Safetensors file(newest->file(kWeightsFile));
  EXPECT_TRUE(std::ranges::count(file.names(), "body.weight") == 1);
  EXPECT_TRUE(std::ranges::count(file.names(), "head.bias") == 0);

  net.tensors[9].second += 1;  // the control: another frozen bias
  TrialConfig other = trial;
  other.model = trial_of(net).model;
  Session session(session_of(1, kAmple));
  const std::string said = thrown<ConfigError>([&] { session.submit(other); }).what();
  EXPECT_NE(said.find("model.frozen: was "), std::string::npos) << said;

  trial.model = trial_of(exported_net()).model;
  Session rest(session_of(1, smallest_budget(trial)));
  const JobId id = rest.submit(trial);
  rest.run();
  expect_same_bits(whole, rest.result().trials[0]);
  const auto weights = rest.weights(id);  // from a checkpoint
  EXPECT_TRUE(std::ranges::find(weights, "head.bias", &NamedTensor::name)
                  ->value.equal(exported_net().tensors[9].second));
}

TEST_F(Exported, RefusesAnotherTypeThanThatOfItsGraphs) {
  TrialConfig trial = trial_of(exported_net());
  trial.train.dtype = FloatType::bf16;
  Session session(session_of(1, kAmple));
  const auto error = thrown<ConfigError>([&] { session.submit(trial); });
  EXPECT_EQ(error.field, "train.dtype");
  EXPECT_NE(error.problem.find("write fp32"), std::string::npos) << error.problem;
}

TEST_F(Exported, FailsIfItsFileChanges) {
  TrialConfig trial = trial_of(exported_net());
  Session session(session_of(1, kAmple));
  session.submit(trial);
  std::filesystem::resize_file(folder_.path() / "net.spw", 100);
  session.run();
  const TrialResult result = session.result().trials[0];
  EXPECT_EQ(result.state, TrialState::failed);
  EXPECT_NE(result.reason.find("net.spw"), std::string::npos) << result.reason;
}

/// aten::lift gives its input, which its schema does not say.
TEST_F(Exported, NamesTheNodeThatChangesAConstant) {
  ExportedNet net = exported_net();
  json& nodes = net.document["graphs"][3]["nodes"];
  nodes.push_back(node("aten::lift", "", json::array({value(2)})));
  nodes.push_back(node("aten::zero_", "", json::array({value(12)})));
  ::setenv("SPILLWAY_CHECK_GRAPHS", "1", 1);
  const TrialConfig trial = trial_of(net);
  Session session(session_of(1, kAmple));
  const std::string said = thrown<Error>([&] { session.submit(trial); }).what();
  ::unsetenv("SPILLWAY_CHECK_GRAPHS");
  EXPECT_NE(said.find("layer 'body.0', training, node 8 (aten::zero_): changed an input, parameter "
                      "or constant"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace spillway::testing
