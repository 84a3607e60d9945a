#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/fold.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "spillway/weights.h"
#include "tests/support/check/thrown.h"
#include "tests/support/run/interrupted.h"
#include "tests/support/run/training_run.h"

/// Layers that are divided into pieces.
namespace spillway::testing {
namespace {

/// Pieces of equal and of unequal sizes.
constexpr GptPieces kPieces{.attention = 4, .mlp = 3, .vocabulary = 5};

GptConfig divided_gpt(const GptPieces& pieces = kPieces) {
  GptConfig model = tiny_gpt();
  model.num_attention_heads = 4;
  model.pieces = pieces;
  return model;
}

TrialConfig divided_trial(const GptPieces& pieces = kPieces) {
  return tiny_trial("divided", divided_gpt(pieces));
}

const RunResult& pieces_resident() {
  static const RunResult result = train(session_of(1, kAmple), divided_trial());
  return result;
}

const RunResult& undivided() {
  static const RunResult result = train(session_of(1, kAmple), divided_trial({}));
  return result;
}

std::vector<double> all_losses(const TrialResult& trial) {
  std::vector<double> losses = trial.losses;
  for (const auto& [step, loss] : trial.eval_losses) losses.push_back(loss);
  return losses;
}

void expect_same_bits_on_the_smallest_device(const TrialConfig& trial,
                                             const TrialResult& resident_result) {
  const RunResult spilled = train(session_of(1, smallest_budget(trial)), trial);
  EXPECT_GT(spilled.trials[0].num_shards, 2);
  expect_within_budgets(spilled);
  expect_same_bits(spilled.trials[0], resident_result);
}

/// The layer behind pieces, which adds their terms itself.
class Adding final : public Layer {
 public:
  Adding(std::unique_ptr<Layer> layer, int num_terms, bool by_tree)
      : layer_(std::move(layer)), num_terms_(num_terms), by_tree_(by_tree) {}

  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext& context) const override {
    at::Tensor sum = inputs[0];
    for (int i = 1; !by_tree_ && i < num_terms_; ++i) sum = sum + inputs[at(i)];
    if (by_tree_) sum = fold(inputs.first(at(num_terms_)), num_terms_);
    std::vector<at::Tensor> rest{sum};
    rest.insert(rest.end(), inputs.begin() + num_terms_, inputs.end());
    return layer_->forward(rest, params, context);
  }

 private:
  std::unique_ptr<Layer> layer_;
  int num_terms_;
  bool by_tree_;
};

/// What adds the terms of pieces in a model that computes the same function.
struct Additions {
  bool forward_by_tree = true, backward_by_tree = true;
};

/// The divided model with an edge for each term.
std::unique_ptr<Model> with_own_edges(std::int64_t vn_size, Additions additions) {
  auto model = make_gpt(divided_gpt(), vn_size);
  ModelSpec& spec = model->spec;
  const auto num_edges = static_cast<int>(spec.edges.size());
  for (int e = 0; e < num_edges; ++e) {
    const int makers = std::exchange(spec.edges[at(e)].makers, 1);
    if (makers == 1) continue;
    const int reader = spec.consumers(e).front();
    std::vector<int>& inputs = spec.layers[at(reader)].inputs;
    for (int i = 1; i < makers; ++i) {
      EdgeSpec term = spec.edges[at(e)];
      term.producer += i;
      spec.layers[at(term.producer)].outputs = {static_cast<int>(spec.edges.size())};
      inputs.insert(inputs.begin() + i, static_cast<int>(spec.edges.size()));
      spec.edges.push_back(term);
    }
    auto& layer = model->layers[at(reader)];
    layer = std::make_unique<Adding>(std::move(layer), makers, additions.forward_by_tree);
  }
  if (!additions.backward_by_tree) {
    for (LayerSpec& layer : spec.layers) layer.piece = 0, layer.pieces = 1;
    for (EdgeSpec& edge : spec.edges) edge.reading_pieces = 1;
  }
  spec.validate();
  return model;
}

TEST(Pieces, KeepTheirBitsAtEveryBudget) {
  ASSERT_EQ(pieces_resident().trials[0].num_shards, 1);
  const TrialConfig trial = divided_trial();
  const Bytes smallest = smallest_budget(trial);
  std::set<int> shards;
  for (const Bytes budget : {smallest, smallest * 9 / 8, smallest * 3 / 2, smallest * 2}) {
    const RunResult spilled = train(session_of(1, budget), trial);
    expect_same_bits(spilled.trials[0], pieces_resident().trials[0]);
    expect_within_budgets(spilled);
    shards.insert(spilled.trials[0].num_shards);
  }
  EXPECT_GE(shards.size(), 3u);
  const auto num_undivided = static_cast<int>(divided_trial({}).model(1)->spec.layers.size());
  EXPECT_GT(*shards.rbegin(), 2 * num_undivided) << "divided layers are cut";
}

TEST(Pieces, KeepTheirBitsOverLanesAndDevices) {
  const Bytes budget = smallest_budget(divided_trial()) * 5 / 4;  // for lanes of unequal sizes
  for (const std::vector<int>& lanes : {std::vector{4, 4}, {3, 5}, {1, 7}}) {
    const RunResult two = train(session_of(2, budget), with_lanes(divided_trial(), lanes));
    for (const DeviceResult& device : two.devices) EXPECT_GT(device.ops, 0u);
    expect_same_bits(two.trials[0], pieces_resident().trials[0]);
    expect_within_budgets(two);
  }
}

TEST(Pieces, KeepTheirBitsWhenDevicesAreLost) {
  SessionConfig config = session_of(3, smallest_budget(divided_trial()));
  config.devices[1].imitate.fault = {.kind = FaultKind::fail, .after_ops = 100};
  const RunResult result = train(config, with_lanes(divided_trial(), {3, 3, 2}));
  EXPECT_LE(result.devices[1].ops, 100u) << "it is lost then";
  EXPECT_GT(result.devices[2].ops, 200u);
  expect_same_bits(result.trials[0], pieces_resident().trials[0]);
}

TEST(Pieces, KeepTheirBitsAfterAResume) {
  const TrialConfig trial = divided_trial();
  const Interrupted interrupted(trial);
  const RunResult resumed =
      train(session_of(1, smallest_budget(trial)), interrupted.continued(trial));
  expect_same_bits(resumed.trials[0], pieces_resident().trials[0]);
}

/// Controls: pieces are part of what decides the bits.
TEST(Pieces, DifferForOtherNumbers) {
  for (const GptPieces& pieces : {GptPieces{},
                                  {.attention = 2, .mlp = 3, .vocabulary = 5},
                                  {.attention = 4, .mlp = 4, .vocabulary = 5},
                                  {.attention = 4, .mlp = 3, .vocabulary = 4}}) {
    const RunResult other = train(session_of(1, kAmple), divided_trial(pieces));
    expect_other_bits(other.trials[0], pieces_resident().trials[0]);
  }
}

/// The order of additions, forward and backward, is that of the tree, and it matters.
TEST(Pieces, AddByTheTree) {
  TrialConfig trial = divided_trial();
  const auto train_with = [&](Additions additions) {
    trial.model = [additions](std::int64_t vn_size) { return with_own_edges(vn_size, additions); };
    return train(session_of(1, kAmple), trial).trials[0];
  };
  expect_same_bits(train_with({}), pieces_resident().trials[0]);
  expect_other_bits(train_with({.forward_by_tree = false}), pieces_resident().trials[0]);
  expect_other_bits(train_with({.backward_by_tree = false}), pieces_resident().trials[0]);
}

/// Weights and dropout are those of the undivided model, so losses differ by rounding alone.
TEST(Pieces, TrainTheUndividedModel) {
  const std::vector<double> divided = all_losses(pieces_resident().trials[0]);
  const std::vector<double> whole = all_losses(undivided().trials[0]);
  ASSERT_EQ(divided.size(), whole.size());
  EXPECT_LT(largest_difference(divided, whole), 1e-5);
  TrialConfig other = divided_trial();
  other.train.seed += 1;
  const RunResult control = train(session_of(1, kAmple), other);
  EXPECT_GT(largest_difference(all_losses(control.trials[0]), whole), 1e-3);
}

TEST(Pieces, TrainALayerThatIsLargerThanTheDevice) {
  GptConfig model = divided_gpt({});
  model.vocab_size = 16384;
  const Bytes undivided_least = smallest_budget(tiny_trial("undivided", model));
  const Bytes largest_layer =
      static_cast<Bytes>(model.vocab_size * model.hidden_size) * sizeof(float);
  model.pieces = {.attention = 1, .mlp = 1, .vocabulary = 16};
  const TrialConfig trial = tiny_trial("divided", model);
  const Bytes least = smallest_budget(trial);
  EXPECT_LT(least, largest_layer) << "the weights of the head alone";
  EXPECT_GT(undivided_least, 6 * least);
  const RunResult whole = train(session_of(1, kAmple), trial);
  expect_same_bits_on_the_smallest_device(trial, whole.trials[0]);
}

TEST(Pieces, KeepTheirBitsInBf16) {
  TrialConfig trial = divided_trial();
  trial.train.dtype = trial.train.gradient_dtype = FloatType::bf16;
  const RunResult whole = train(session_of(1, kAmple), trial);
  expect_same_bits_on_the_smallest_device(trial, whole.trials[0]);
  expect_other_bits(whole.trials[0], pieces_resident().trials[0]);
}

TEST(Pieces, GiveWholeTensors) {
  TrialConfig trial = divided_trial();
  trial.keep_weights = true;
  Session session(session_of(1, kAmple));
  const JobId job = session.submit(trial);
  session.run();
  const std::vector<NamedTensor> weights = session.weights(job);
  const auto model = make_gpt(divided_gpt({}), 1);
  ASSERT_EQ(weights.size(), model->spec.params.size());
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const ParamSpec& param = model->spec.params[p];
    EXPECT_EQ(weights[p].name, param.name);
    EXPECT_EQ(weights[p].value.sizes(), at::IntArrayRef(param.tensor.shape())) << param.name;
  }
  // The undivided model evaluates them to the same loss, up to rounding.
  const auto data = std::make_shared<RuleSource>(64, 17, 1'000'000);
  const double own = session.evaluate(job, data).loss;
  const double whole = session.evaluate(divided_trial({}), weights, data).loss;
  EXPECT_NEAR(own, whole, 1e-5);
  EXPECT_EQ(own, session.evaluate(trial, weights, data).loss);
}

TEST(Pieces, FreezeWithTheWholeTensor) {
  GptConfig model = divided_gpt();
  model.freeze = {"wte.*", "h.1.attn.qkv.weight"};
  const ModelSpec spec = make_gpt(model, 1)->spec;
  int num_frozen = 0;
  for (const ParamSpec& param : spec.params) num_frozen += param.trainable ? 0 : 1;
  EXPECT_EQ(num_frozen, 5 + 4);
  const TrialConfig trial = tiny_trial("frozen", model);
  const RunResult whole = train(session_of(1, kAmple), trial);
  expect_same_bits_on_the_smallest_device(trial, whole.trials[0]);
}

TEST(Pieces, RefuseToPredict) {
  TrialConfig trial = divided_trial();
  trial.keep_weights = true;
  Session session(session_of(1, kAmple));
  const JobId job = session.submit(trial);
  session.run();
  const auto data = std::make_shared<RuleSource>(4, 17, 0);
  const std::string said = thrown<Error>([&] { session.predict(job, data); }).what();
  EXPECT_NE(said.find("model.pieces.vocabulary: 1"), std::string::npos) << said;
}

}  // namespace
}  // namespace spillway::testing
