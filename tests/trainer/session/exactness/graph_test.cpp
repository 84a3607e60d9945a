#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/models/skip_model.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"
#include "trainer/compute/initialize.h"

/// Models that are not chains.
namespace spillway::testing {
namespace {

const RunResult& skip_resident() {
  static const RunResult result = train(session_of(1, kAmple), skip_trial());
  return result;
}

TEST(Graph, HasTheSameBitsForEveryBudgetAndLanes) {
  ASSERT_EQ(skip_resident().trials[0].num_shards, 1);
  const Bytes smallest = smallest_budget(skip_trial());
  std::set<int> shards;
  for (const Bytes budget : {smallest, smallest * 5 / 4, smallest * 3 / 2, smallest * 2}) {
    const RunResult spilled = train(session_of(1, budget), skip_trial());
    shards.insert(spilled.trials[0].num_shards);
    expect_same_bits(spilled.trials[0], skip_resident().trials[0]);
    expect_within_budgets(spilled);
  }
  EXPECT_GE(shards.size(), 3u);
  EXPECT_GE(*shards.rbegin(), 4);
  TrialConfig lanes = skip_trial();
  lanes.train.data_parallel = 2;
  const RunResult two = train(session_of(2, smallest), lanes);
  for (const DeviceResult& device : two.devices) EXPECT_GT(device.ops, 0u);
  expect_same_bits(two.trials[0], skip_resident().trials[0]);
}

/// Negative controls: bits differ if the gradients of an edge are added in another order, or lost.
TEST(Graph, DiffersForAnotherOrderOfReaders) {
  TrialConfig other = skip_trial();
  other.model = [](std::int64_t vn_size) {
    auto model = make_skip_model(vn_size);
    std::swap(model->spec.layers[4].inputs[0], model->spec.layers[4].inputs[1]);
    return model;  // u4 = u1 + u3: the same function
  };
  const RunResult same = train(session_of(1, kAmple), other);
  expect_same_bits(same.trials[0], skip_resident().trials[0]);
  other.model = [](std::int64_t vn_size) {
    auto model = make_skip_model(vn_size);
    model->spec.edges[1].differentiable = false;  // u1 gets no gradient
    return model;
  };
  expect_other_bits(train(session_of(1, kAmple), other).trials[0], skip_resident().trials[0]);
}

/// Each virtual node in one autograd graph.
std::vector<double> skip_plain_losses(const TrialConfig& trial) {
  const auto model = make_skip_model(2);
  Tensors weights;
  for (const ParamSpec& spec : model->spec.params) {
    weights.push_back(at::empty(spec.tensor.shape()));
    initialize(weights.back().data_ptr<float>(), spec, trial.train.seed, weights.size() - 1);
    weights.back().requires_grad_();
  }
  return plain_training(trial, weights, [&](const at::Tensor& rows) {
    std::map<std::string, at::Tensor> values{{"tokens", rows}};
    auto next = weights.begin();
    for (const SkipPiece& piece : skip_pieces()) {
      Tensors reads;
      for (const std::string& name : piece.reads) reads.push_back(values.at(name));
      values[piece.name] = piece.forward(reads, {next, next + piece.num_weights});
      next += piece.num_weights;
    }
    return values.at("loss") / rows.size(0);
  });
}

TEST(Graph, HasTheLossesOfOneAutogradGraph) {
  TrialConfig trial = skip_trial();
  trial.train.optimizer = OptimizerKind::sgd;
  trial.train.momentum = trial.train.weight_decay = trial.train.max_grad_norm = 0;
  trial.train.warmup_ratio = 0;
  trial.train.lr_scheduler_type = LrSchedulerType::constant;
  trial.train.learning_rate = 0.1;
  trial.train.max_steps = 100;
  const RunResult spilled = train(session_of(1, smallest_budget(trial)), trial);
  const std::vector<double>& losses = spilled.trials[0].losses;
  const std::vector<double> plain = skip_plain_losses(trial);
  ASSERT_EQ(losses.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(losses[i], plain[i], 2e-5) << i;
  EXPECT_LT(losses.back(), 0.95 * losses.front());
  trial.train.learning_rate = 0.099;
  EXPECT_GT(std::abs(skip_plain_losses(trial).back() - losses.back()), 1e-3);
}

}  // namespace
}  // namespace spillway::testing
