#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "spillway/error.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/run/training_run.h"

/// Metrics beside the loss, of whole runs.
namespace spillway::testing {
namespace {

/// Summed in f32, so that the order shows.
Metric absolute_error() {
  return mean_metric("absolute_error", [](std::span<const at::Tensor> x) {
    return LossSum{(x[0] - x[1].view_as(x[0])).abs().sum(), static_cast<double>(x[0].numel())};
  });
}

TrialConfig classification() {
  SmallNet net = small_nets()[0];
  net.config.metrics = {accuracy(), perplexity()};
  return net_trial(net);
}

TrialConfig regression() {
  SmallNet net = small_nets()[3];
  net.config.metrics = {r_squared(), absolute_error()};
  return net_trial(net);
}

const TrialResult& resident() {
  static const TrialResult result = train(session_of(1, kAmple), regression()).trials[0];
  return result;
}

TEST(SessionMetrics, AreTheSameBitsOverBudgetsDevicesAndLanes) {
  ASSERT_EQ(resident().num_shards, 1);
  ASSERT_EQ(resident().eval_metrics.size(), 2u);
  EXPECT_EQ(resident().metrics, resident().eval_metrics.back().second);
  EXPECT_EQ(resident().metrics.size(), 2u);
  const Bytes budget = smallest_budget(regression());
  const RunResult spilled = train(session_of(1, budget), regression());
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  expect_within_budgets(spilled);
  expect_same_bits(spilled.trials[0], resident());
  for (const Bytes of_lane : {budget, kAmple}) {
    const RunResult lanes = train(session_of(2, of_lane), with_lanes(regression(), {1, 1}));
    for (const DeviceResult& device : lanes.devices) EXPECT_GT(device.ops, 0u);
    expect_same_bits(lanes.trials[0], resident());
  }
}

/// The control: the same weights and samples, added in another order.
TEST(SessionMetrics, DifferForOtherVirtualNodes) {
  const auto frozen = [](int virtual_nodes) {
    TrialConfig trial = regression();
    trial.train.max_steps = 1;
    trial.train.warmup_ratio = 0.9;  // the first learning rate is 0
    trial.train.virtual_nodes = virtual_nodes;
    return train(session_of(1, kAmple), trial).trials[0];
  };
  const TrialResult four = frozen(4), two = frozen(2);
  ASSERT_EQ(four.weights_xxh3, two.weights_xxh3);
  EXPECT_NE(four.metrics, two.metrics);
  for (const auto& [name, value] : four.metrics) EXPECT_NEAR(value, two.metrics.at(name), 1e-5);
}

/// The last evaluation, with nothing but LibTorch: output and targets [32, ...].
std::pair<at::Tensor, at::Tensor> plain_evaluation(const SmallNet& net, TrialConfig trial,
                                                   TrialResult& result) {
  const TemporaryFolder folder;
  trial.weights_file = folder / "weights.safetensors";
  result = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  auto model = net.make();
  const at::NoGradGuard no_grad;
  const Safetensors file(file_source(posix_file_system(), trial.weights_file));
  for (auto& param : model->named_parameters()) {
    file.read(file.at(param.key()), 0,
              {static_cast<std::byte*>(param.value().data_ptr()), param.value().nbytes()});
  }
  const DataSource& data = *trial.data->eval;
  auto rows = at::empty({32, data.sample_elements()});
  for (std::int64_t i = 0; i < 32; ++i) {
    data.read(static_cast<std::uint64_t>(i),
              {static_cast<std::byte*>(rows[i].data_ptr()), rows[i].nbytes()});
  }
  std::vector<std::int64_t> shape{32};
  shape.insert(shape.end(), net.config.input_shape.begin(), net.config.input_shape.end());
  const std::int64_t targets = net.config.loss == "mse" ? 3 : 1;
  const std::int64_t inputs = rows.size(1) - targets;
  return {model->forward(rows.narrow(1, 0, inputs).reshape(shape)),
          rows.narrow(1, inputs, targets)};
}

TEST(SessionMetrics, AreThoseOfPlainLibTorch) {
  TrialResult result;
  const auto [logits, labels] = plain_evaluation(small_nets()[0], classification(), result);
  const auto classes = labels.squeeze(1).to(at::kLong);
  const auto is_right = logits.argmax(1).eq(classes).to(at::kDouble);
  EXPECT_EQ(result.metrics.at("accuracy"), is_right.mean().item<double>());
  EXPECT_GT(result.metrics.at("accuracy"), 0) << "it has learned";
  EXPECT_EQ(result.metrics.at("perplexity"), std::exp(*result.eval_loss));
  EXPECT_NEAR(*result.eval_loss, at::cross_entropy_loss(logits, classes).item<double>(), 1e-5);
  const auto [values, wanted] = plain_evaluation(small_nets()[3], regression(), result);
  const auto deviations = (wanted - wanted.mean()).square().sum();
  const auto r2 = 1 - (values - wanted).square().sum() / deviations;
  EXPECT_NEAR(result.metrics.at("r2"), r2.item<double>(), 1e-4);
  EXPECT_NEAR(result.metrics.at("absolute_error"), (values - wanted).abs().mean().item<double>(),
              1e-5);
}

/// Trials whose order by one value is not that by another one.
std::vector<TrialConfig> sweep() {
  std::vector<TrialConfig> trials;
  for (const double rate : {3e-3, 1e-2, 3e-5, 1e-3}) {
    TrialConfig trial = regression();
    trial.name = std::to_string(rate);
    trial.train.learning_rate = rate;
    trials.push_back(trial);
  }
  return trials;
}

SessionConfig by_metric(int num_devices, const std::string& name, MetricGoal goal) {
  SessionConfig config = session_of(num_devices, kAmple);
  config.early_terminate =
      EarlyTerminate{.min_iter = 4, .eta = 4, .own_metric = name, .goal = goal};
  return config;
}

/// Goes on: the one trial of four that is done.
std::size_t survivor(const RunResult& result) {
  const auto done = std::ranges::find(result.trials, TrialState::done, &TrialResult::state);
  EXPECT_EQ(std::ranges::count(result.trials, TrialState::stopped_early, &TrialResult::state), 3);
  return static_cast<std::size_t>(done - result.trials.begin());
}

TEST(SessionMetrics, DecideWhichTrialsGoOn) {
  const RunResult best = train(by_metric(1, "r2", MetricGoal::maximize), sweep());
  const RunResult worst = train(by_metric(2, "r2", MetricGoal::minimize), sweep());
  for (const RunResult* run : {&best, &worst}) {
    const double sign = run == &best ? 1 : -1;
    const auto at_rung = [&](const TrialResult& trial) {
      return sign * trial.rung_losses[0].second;
    };
    const auto first = std::ranges::max_element(run->trials, {}, at_rung);
    EXPECT_EQ(first - run->trials.begin(), static_cast<std::ptrdiff_t>(survivor(*run)));
    for (const TrialResult& trial : run->trials) {
      EXPECT_EQ(trial.rung_losses[0].second, trial.eval_metrics[0].second.at("r2"));
    }
  }
  EXPECT_NE(survivor(best), survivor(worst)) << "the control";
  const RunResult elsewhere = train(by_metric(2, "r2", MetricGoal::maximize), sweep());
  for (std::size_t t = 0; t < 4; ++t) {
    EXPECT_EQ(elsewhere.trials[t].rung_losses, best.trials[t].rung_losses);
    EXPECT_EQ(elsewhere.trials[t].state, best.trials[t].state);
  }
  EXPECT_NE(best.trials[survivor(worst)].reason.find(" by r2 ("), std::string::npos);
}

TEST(SessionMetrics, MustBeOfTheModelToDecide) {
  Session session(by_metric(1, "accuracy", MetricGoal::maximize));
  const auto error = thrown<ConfigError>([&] { session.submit(regression()); });
  EXPECT_EQ(error.field, "sweep.metric.name");
  EXPECT_NE(std::string(error.what()).find("no such metric of the model"), std::string::npos);
}

TEST(SessionMetrics, AreInEventsAndSurviveAResume) {
  const TemporaryFolder folder;
  TrialConfig trial = regression();
  trial.checkpoint = {.folder = folder / "checkpoints", .every_steps = 5};
  trial.until = 8;
  {
    Session session(session_of(1, kAmple));
    const JobId id = session.submit(trial);
    session.start();
    session.wait(id);
    std::vector<std::pair<std::int64_t, Metrics>> in_events;
    for (const SessionEvent& event : session.poll(0, 0)) {
      if (event.kind == SessionEvent::Kind::eval) in_events.emplace_back(event.step, event.metrics);
    }
    EXPECT_EQ(in_events, session.result().trials[0].eval_metrics);
    session.finish();
  }
  trial.until = 0;
  trial.checkpoint.resume = true;
  const TrialResult resumed = train(session_of(1, kAmple), trial).trials[0];
  EXPECT_EQ(resumed.eval_metrics, resident().eval_metrics);
}

}  // namespace
}  // namespace spillway::testing
