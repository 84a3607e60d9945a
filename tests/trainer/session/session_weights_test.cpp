#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "spillway/error.h"
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
    arrays.push_back({name,
                      value.sizes().vec(),
                      {static_cast<const std::byte*>(value.const_data_ptr()), value.nbytes()},
                      value.scalar_type() == at::kLong ? DType::i64 : DType::f32});
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

TEST(SessionWeights, OfAPausedTrialAreThoseOfOneThatEndsThere) {
  TrialConfig trial = norm_trial();
  trial.until = 10;
  Session session(session_of(1, smallest_budget(trial)));
  const JobId id = session.submit(trial);
  session.start();
  ASSERT_EQ(session.wait(id), TrialState::paused);
  const std::string at_rest = hash_of(session.weights(id));
  TrialConfig shorter = norm_trial();
  shorter.train.max_steps = 10;
  EXPECT_EQ(at_rest, Trained(shorter).result.weights_xxh3);
  session.extend(id, 20);
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
            "trial norm has left its weights nowhere; set keep_weights, a weights_file, or "
            "checkpoints");
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

}  // namespace
}  // namespace spillway::testing
