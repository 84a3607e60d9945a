#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/tensor_source.h"
#include "spillway/weights.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/padded_graph.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/run/training_run.h"
#include "trainer/storage/weights_file.h"

/// Weights of trials as tensors, and trials on other data.
namespace spillway::testing {
namespace {

using Weights = std::vector<NamedTensor>;

std::string hash_of(const Weights& weights) {
  std::vector<NamedArray> arrays;
  for (const auto& [name, value] : weights) {
    arrays.push_back(
        array_of(name, value.sizes().vec(),
                 {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()},
                 value.scalar_type() == at::kLong ? DType::i64 : DType::f32));
  }
  return weights_xxh3(arrays);
}

/// With batch norms, so with buffers.
TrialConfig norm_trial() {
  SmallNet net = small_nets()[1];
  net.config.metrics = {accuracy(), perplexity()};
  TrialConfig trial = net_trial(net);
  trial.train.eval_batches = 3;  // all 40 samples
  return trial;
}

/// Trains it; the session keeps the weights.
struct Trained {
  explicit Trained(TrialConfig trial, SessionConfig config = session_of(1, kAmple))
      : session(std::move(config)) {
    trial.keep_weights = true;
    id = session.submit(trial);
    session.run();
    result = session.result().trials[0];
  }
  Session session;
  JobId id;
  TrialResult result;
};

TEST(SessionWeights, AreTheSameFromMemoryFileAndCheckpoint) {
  const TemporaryFolder folder;
  const Trained kept(norm_trial());
  const Weights weights = kept.session.weights(kept.id);
  EXPECT_EQ(hash_of(weights), kept.result.weights_xxh3);
  for (const bool in_file : {true, false}) {
    TrialConfig trial = norm_trial();
    if (in_file) {
      trial.weights_file = folder / "weights.safetensors";
    } else {
      trial.checkpoint.folder = folder / "checkpoints";
    }
    Session session(session_of(1, kAmple));
    const JobId id = session.submit(trial);
    session.run();
    EXPECT_EQ(hash_of(session.weights(id)), kept.result.weights_xxh3) << in_file;
  }
}

TEST(SessionWeights, AreTheSameForAPausedAndAnEndedTrial) {
  TrialConfig trial = norm_trial();
  trial.until = 5;
  Session session(session_of(1, smallest_budget(trial)));
  const JobId id = session.submit(trial);
  session.start();
  ASSERT_EQ(session.wait(id), TrialState::paused);
  const std::string at_rest = hash_of(session.weights(id));
  TrialConfig shorter = norm_trial();
  shorter.train.max_steps = 5;
  EXPECT_EQ(at_rest, Trained(shorter).result.weights_xxh3);
  session.extend(id, 10);
  ASSERT_EQ(session.wait(id), TrialState::done);
  EXPECT_EQ(session.result().trials[0].weights_xxh3, Trained(norm_trial()).result.weights_xxh3);
  EXPECT_NE(session.result().trials[0].weights_xxh3, at_rest) << "the control";
}

TEST(SessionWeights, AreRefusedWhereThereAreNone) {
  Session session(session_of(1, kAmple));
  const JobId id = session.submit(norm_trial());
  const auto error = [&] {
    return std::string(thrown<Error>([&] { session.weights(id); }).what());
  };
  EXPECT_EQ(error(), "trial norm still trains; pause it and wait for it, or for its end");
  session.run();
  EXPECT_EQ(error(),
            "the weights of trial norm were not kept; set keep_weights, weights_file or "
            "checkpoint.folder");
}

/// The words of padded_graph() and its head, which share their weights.
struct WordsAndHeadImpl : torch::nn::Module {
  WordsAndHeadImpl()
      : words(register_module("words", torch::nn::Embedding(kPaddedWords, kPaddedWidth))),
        first(register_module("first", Mixer(0.))),
        head(register_module("head", TiedHead(words->weight))) {}
  torch::nn::Embedding words;
  Mixer first;
  TiedHead head;
};

TEST(LoadWeights, FillsModulesByTheirOwnNames) {
  const Trained kept(padded_trial());
  const Weights weights = kept.session.weights(kept.id);
  WordsAndHeadImpl whole;
  load_weights(weights, whole);
  EXPECT_TRUE(whole.words->weight.equal(weights[0].value));
  EXPECT_TRUE(whole.head->weight.is_same(whole.words->weight)) << "still tied";
  Mixer second(0.);
  load_weights(weights, *second, "second.");
  EXPECT_FALSE(second->linear->weight.equal(whole.first->linear->weight));
}

TEST(LoadWeights, ChangesNothingIfATensorIsMissingOrHasAnotherShape) {
  const Weights weights{{"weight", torch::ones({2, 3})}, {"bias", torch::ones({3})}};
  torch::nn::Linear linear(3, 2);
  const torch::Tensor before = linear->weight.detach().clone();
  const auto problem = [&](const Weights& some) {
    return std::string(thrown<Error>([&] { load_weights(some, *linear); }).what());
  };
  EXPECT_EQ(problem(weights),
            "the tensor 'bias' is Float [2] in the module, but Float [3] among the weights");
  EXPECT_EQ(problem({weights[0]}),
            "the module has the tensor 'bias', which is not among the weights");
  EXPECT_TRUE(linear->weight.equal(before));
}

/// The first samples of another source.
struct First final : DataSource {
  First(std::shared_ptr<const DataSource> all, std::uint64_t count)
      : whole(std::move(all)), num(count) {}
  std::uint64_t num_samples() const override { return num; }
  std::int64_t sample_elements() const override { return whole->sample_elements(); }
  DType dtype() const override { return whole->dtype(); }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    whole->read(index, row);
  }
  std::shared_ptr<const DataSource> whole;
  std::uint64_t num;
};

TEST(SessionEvaluate, GivesTheLastEvaluationOnItsSamples) {
  const TrialConfig trial = norm_trial();
  Trained kept(trial);
  const Evaluation values = kept.session.evaluate(kept.id, trial.data->eval);
  EXPECT_EQ(values.loss, kept.result.eval_loss);
  EXPECT_EQ(values.metrics, kept.result.metrics);
  EXPECT_NE(kept.session.evaluate(kept.id, trial.data->train).loss, values.loss) << "the control";
}

/// 37 samples are nine virtual nodes and one sample more.
TEST(SessionEvaluate, IsTheSameOverBudgetsAndLanesAndThatOfTheModule) {
  const TrialConfig trial = norm_trial();
  const auto data = std::make_shared<First>(trial.data->eval, 37);
  Trained kept(trial);
  const Evaluation values = kept.session.evaluate(kept.id, data);
  const at::Tensor outputs = kept.session.predict(kept.id, data);
  ASSERT_EQ(outputs.sizes().vec(), (std::vector<std::int64_t>{37, 10}));

  Trained spilled(with_lanes(trial, {1, 1}), session_of(2, smallest_budget(trial)));
  ASSERT_GT(spilled.result.num_shards, 2);
  EXPECT_EQ(spilled.session.evaluate(spilled.id, data).loss, values.loss);
  EXPECT_EQ(spilled.session.evaluate(spilled.id, data).metrics, values.metrics);
  EXPECT_TRUE(spilled.session.predict(spilled.id, data).equal(outputs));
  expect_within_budgets(spilled.session.result());

  auto model = norm_net();
  load_weights(kept.session.weights(kept.id), *model);
  model->eval();
  const torch::NoGradGuard no_grad;
  auto rows = torch::empty({37, data->sample_elements()});
  for (std::int64_t i = 0; i < 37; ++i) {
    data->read(static_cast<std::uint64_t>(i),
               {static_cast<std::byte*>(rows[i].data_ptr()), rows[i].nbytes()});
  }
  const auto plain = model->forward(rows.narrow(1, 0, 64).reshape({37, 1, 8, 8}));
  EXPECT_TRUE(plain.allclose(outputs, 1e-4, 1e-4));
  const auto classes = rows.select(1, 64).to(torch::kInt64);
  EXPECT_NEAR(values.loss, torch::cross_entropy_loss(plain, classes).item<double>(), 1e-5);
  EXPECT_EQ(values.metrics.at("accuracy"),
            plain.argmax(1).eq(classes).to(torch::kDouble).mean().item<double>());
}

TEST(SessionEvaluate, RunsBesideTrialsThatTrain) {
  const TrialConfig trial = norm_trial();
  Session session(session_of(1, kAmple));
  TrialConfig first = trial;
  first.keep_weights = true;
  const JobId id = session.submit(first);
  session.start();
  session.wait(id);
  TrialConfig longer = trial;
  longer.train.max_steps = 200;
  const JobId other = session.submit(longer);
  EXPECT_EQ(session.evaluate(id, trial.data->eval).loss, session.result().trials[0].eval_loss);
  session.pause(other);
  session.wait(other);
  session.evaluate(other, trial.data->eval);
  session.resume(other);
  session.wait(other);
  EXPECT_EQ(session.result().trials[other.index()].weights_xxh3,
            train(session_of(1, kAmple), longer).trials[0].weights_xxh3);
  session.finish();
}

/// Trials that come after an evaluation are compared as if there had been none.
TEST(SessionEvaluate, IsNotComparedByEarlyStopping) {
  const auto outcome = [](bool evaluates) {
    SessionConfig config = session_of(1, kAmple);
    config.early_terminate =
        EarlyTerminate{.min_iter = 4, .eta = 2, .brackets = 2, .metric = MetricKind::final_loss};
    Session session(config);
    const auto train_three = [&] {
      for (const double rate : {1e-3, 1e-4, 1e-2}) {
        TrialConfig trial = norm_trial();
        trial.train.learning_rate = rate;
        trial.keep_weights = true;
        session.submit(trial);
      }
      session.run();
    };
    train_three();
    if (evaluates) session.evaluate(JobId(0), norm_trial().data->eval);
    train_three();
    std::vector<std::int64_t> steps;
    for (const TrialResult& trial : session.result().trials) {
      if (!trial.name.ends_with("/evaluation")) steps.push_back(trial.steps);
    }
    return steps;
  };
  EXPECT_EQ(outcome(true), outcome(false));
}

TEST(SessionEvaluate, TakesWeightsOfATrialThatTheSessionDoesNotHave) {
  const TrialConfig trial = norm_trial();
  const Trained kept(trial);
  Weights weights = kept.session.weights(kept.id);
  Session other(session_of(1, smallest_budget(trial)));
  const Evaluation values = other.evaluate(trial, weights, trial.data->eval);
  EXPECT_EQ(values.loss, kept.result.eval_loss);
  EXPECT_EQ(values.metrics, kept.result.metrics);
  weights[0].value = weights[0].value + 1;
  EXPECT_NE(other.evaluate(trial, weights, trial.data->eval).loss, values.loss) << "the control";
  weights.erase(weights.begin());
  const auto evaluate = [&](const TrialConfig& some) {
    other.evaluate(some, weights, trial.data->eval);
  };
  EXPECT_NE(std::string(thrown<Error>([&] { evaluate(trial); }).what()).find("lack parameter"),
            std::string::npos);
  TrialConfig wrong = trial;
  wrong.model = nullptr;
  EXPECT_EQ(thrown<ConfigError>([&] { evaluate(wrong); }).field, "model");
  wrong = trial;
  wrong.train.batch_size = 0;
  EXPECT_EQ(thrown<ConfigError>([&] { evaluate(wrong); }).field, "train.batch_size");
}

TEST(SessionEvaluate, RefusesDataThatDoesNotFit) {
  const TrialConfig trial = norm_trial();
  Trained kept(trial);
  const auto refused = [&](const std::shared_ptr<const DataSource>& data) {
    return thrown<ConfigError>([&] { kept.session.evaluate(kept.id, data); }).field;
  };
  EXPECT_EQ(refused(nullptr), "data");
  EXPECT_EQ(refused(tensor_data(torch::ones({8, 3}), torch::zeros({8}), 0)->train), "data");
}

}  // namespace
}  // namespace spillway::testing
