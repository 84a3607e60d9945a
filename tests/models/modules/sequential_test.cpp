#include "spillway/sequential.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "spillway/error.h"
#include "spillway/model.h"
#include "tests/support/check/thrown.h"

namespace spillway {
namespace {

using testing::thrown;
using torch::nn::Linear;
using torch::nn::Sequential;
using Names = std::vector<std::string>;

constexpr std::int64_t kRows = 3;

std::unique_ptr<Model> model_of(const std::function<Sequential()>& make,
                                const SequentialConfig& config = {.input_shape = {8}}) {
  return sequential_factory(make, config)(kRows);
}

/// What is wrong with a model.
std::string problem_of(const std::function<Sequential()>& make,
                       const SequentialConfig& config = {.input_shape = {8}}) {
  const auto error = thrown<ConfigError>([&] { model_of(make, config); });
  EXPECT_EQ(error.field, "model");
  return error.problem;
}

/// What is wrong with a child, behind its name and type. It stands behind Linear(8, 8).
template <typename Module>
std::string problem_of_child(const Module& child) {
  const std::string problem = problem_of([&] { return Sequential(Linear(8, 8), child); });
  EXPECT_EQ(problem.rfind("module '1' (", 0), 0u) << problem;
  return problem.substr(problem.find(") ") + 2);
}

/// A function as a module.
struct CallImpl : torch::nn::Module {
  explicit CallImpl(std::function<torch::Tensor(torch::Tensor)> f) : function(std::move(f)) {}
  torch::Tensor forward(torch::Tensor x) { return function(std::move(x)); }
  std::function<torch::Tensor(torch::Tensor)> function;
};
TORCH_MODULE(Call);

struct TwoInputsImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x, torch::Tensor y) { return x + y; }
};
TORCH_MODULE(TwoInputs);

struct DoubleImpl : torch::nn::Module {
  DoubleImpl() { weight = register_parameter("weight", torch::ones({8}, torch::kDouble)); }
  torch::Tensor forward(torch::Tensor x) { return x * weight.to(torch::kFloat); }
  torch::Tensor weight;
};
TORCH_MODULE(Double);

struct RenormImpl : torch::nn::Module {
  RenormImpl() { weight = register_parameter("weight", torch::ones({8})); }
  torch::Tensor forward(torch::Tensor x) {
    {
      torch::NoGradGuard no_grad;
      weight.div_(2);
    }
    return x * weight;
  }
  torch::Tensor weight;
};
TORCH_MODULE(Renorm);

struct RememberingImpl : torch::nn::Module {
  RememberingImpl() { past = register_buffer("past", torch::zeros({8})); }
  torch::Tensor forward(torch::Tensor x) {
    {
      torch::NoGradGuard no_grad;
      past += 1;
    }
    return x + past;
  }
  torch::Tensor past;
};
TORCH_MODULE(Remembering);

/// A batch norm inside, `times` times.
struct NormsImpl : torch::nn::Module {
  explicit NormsImpl(int times_)
      : norm(register_module("norm", torch::nn::BatchNorm1d(norm_options()))), times(times_) {}
  static torch::nn::BatchNormOptions norm_options() {
    return torch::nn::BatchNormOptions(8).momentum(0.3);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (int i = 0; i < times; ++i) x = norm(x);
    return x * 2;
  }
  torch::nn::BatchNorm1d norm;
  int times;
};
TORCH_MODULE(Norms);

TEST(Sequential, KeepsRunningStatisticsOfBatchNorms) {
  const auto model = model_of([] { return Sequential(Norms(1), Linear(8, 4)); });
  Names names;
  for (const int p : model->spec.layers[0].params)
    names.push_back(model->spec.params[static_cast<std::size_t>(p)].name);
  EXPECT_EQ(names, (Names{"0.norm.weight", "0.norm.bias", "0.norm.running_mean",
                          "0.norm.running_var", "0.norm.num_batches_tracked"}));
  const auto& params = model->spec.params;
  EXPECT_TRUE(params[2].is_observed() && params[3].is_observed());
  EXPECT_EQ(params[2].statistic.momentum, 0.3);
  EXPECT_EQ(params[4].statistic.kind, StatisticSpec::Kind::count);
  EXPECT_EQ(params[4].tensor, (TensorSpec{DType::i64, {}}));
  EXPECT_NO_THROW(model->spec.validate());
  const auto averaged = model_of([] {
    return Sequential(
        torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(8).momentum(std::nullopt)),
        Linear(8, 4));
  });
  EXPECT_EQ(averaged->spec.params[2].statistic.momentum, std::nullopt);
  const auto none = model_of([] {
    return Sequential(
        torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(8).track_running_stats(false)),
        Linear(8, 4));
  });
  EXPECT_EQ(none->spec.layers[0].params.size(), 2u);
}

TEST(Sequential, ObservesBatchNormsInTrainingOnly) {
  const auto model = model_of([] { return Sequential(Norms(1), Linear(8, 4)); });
  const auto x = torch::sin(torch::arange(8 * kRows).to(torch::kFloat)).view({kRows, 8});
  const std::vector<at::Tensor> inputs{torch::cat({x, torch::zeros({kRows, 1})}, 1)};
  const std::vector<at::Tensor> params{torch::full({8}, 2.0f), torch::ones({8}),
                                       torch::full({8}, 0.25f), torch::full({8}, 4.0f),
                                       torch::tensor(std::int64_t{5})};
  const auto normal = [&](const at::Tensor& mean, const at::Tensor& variance) {
    return ((x - mean) / (variance + 1e-5).sqrt() * 2 + 1) * 2;
  };
  for (int call = 0; call < 2; ++call) {  // what was before has no part
    LayerResult result = model->layers[0]->forward(inputs, params, {});
    EXPECT_TRUE(torch::allclose(result.output, normal(x.mean(0), x.var(0, /*unbiased=*/false)),
                                1e-4, 1e-5));
    ASSERT_EQ(result.observations.size(), 2u);
    const auto observations = result.observations;
    result = {};
    EXPECT_TRUE(torch::allclose(observations[0], x.mean(0), 1e-4, 1e-6));
    EXPECT_TRUE(torch::allclose(observations[1], x.var(0), 1e-4, 1e-6));
    result = model->layers[0]->forward(inputs, params, {.training = false});
    EXPECT_TRUE(torch::allclose(result.output, normal(params[2], params[3]), 1e-4, 1e-5));
    EXPECT_TRUE(result.observations.empty());
  }
  EXPECT_TRUE(params[2].equal(torch::full({8}, 0.25f))) << "device memory is only read";
  EXPECT_EQ(params[4].item<std::int64_t>(), 5);
}

TEST(Sequential, KeysADropoutChild) {
  const auto model = model_of([] { return Sequential(torch::nn::Dropout(0.5), Linear(8, 4)); });
  EXPECT_TRUE(model->spec.layers[0].params.empty());
  const auto rows = torch::ones({kRows, 9});
  const auto dropped = [&](const LayerContext& context) {
    return model->layers[0]->forward(std::vector{rows}, {}, context).output;
  };
  const LayerContext once{.random = {.seed = 1, .step = 2, .vn = 3}};
  LayerContext later = once;
  later.random.step = 3;
  EXPECT_TRUE(dropped(once).equal(dropped(once)));
  EXPECT_FALSE(dropped(once).equal(dropped(later)));
  EXPECT_TRUE(dropped(once).eq(0).logical_or(dropped(once).eq(2)).all().item<bool>());
  EXPECT_TRUE(dropped({.training = false}).equal(torch::ones({kRows, 8})));
  EXPECT_TRUE(
      problem_of([] { return Sequential(torch::nn::Dropout(0.5), torch::nn::Embedding(9, 4)); },
                 {.input_shape = {8}, .input_dtype = DType::i64})
          .ends_with("dropout needs floating-point numbers"));
}

TEST(Sequential, MakesALayerOfEachChildAndOfTheLoss) {
  const auto model = model_of(
      [] {
        using namespace torch::nn;
        return Sequential({{"conv", AnyModule(Conv2d(Conv2dOptions(2, 4, 3)))},
                           {"relu", AnyModule(ReLU())},
                           {"flat", AnyModule(Flatten())},
                           {"last", AnyModule(Linear(16, 5))}});
      },
      {.input_shape = {2, 4, 4}});
  Names layers, params;
  for (const LayerSpec& layer : model->spec.layers) layers.push_back(layer.name);
  for (const ParamSpec& param : model->spec.params) {
    params.push_back(param.name);
    EXPECT_EQ(param.decay, param.name.ends_with("weight"));
    EXPECT_TRUE(param.trainable);
  }
  EXPECT_EQ(layers, (Names{"conv", "relu", "flat", "last", "loss"}));
  EXPECT_EQ(params, (Names{"conv.weight", "conv.bias", "last.weight", "last.bias"}));
  using Shape = std::vector<std::int64_t>;
  const auto& edges = model->spec.edges;
  EXPECT_EQ(edges[0].tensor.shape(), (Shape{kRows, 2 * 4 * 4 + 1}));
  EXPECT_EQ(edges[0].tensor.dtype, DType::f32);
  EXPECT_EQ(edges[1].tensor.shape(), (Shape{kRows, 4, 2, 2}));
  EXPECT_EQ(edges[3].tensor.shape(), (Shape{kRows, 16}));
  EXPECT_EQ(model->spec.consumers(0), (std::vector<int>{0, 4}));
  EXPECT_EQ(model->spec.params[0].tensor.shape(), (Shape{4, 2, 3, 3}));
}

TEST(Sequential, TakesTheTargetsOfTheLoss) {
  const auto values = [](const SequentialConfig& config) {
    return model_of([] { return Sequential(Linear(8, 6)); }, config)
        ->spec.edges[0]
        .tensor.shape()[1];
  };
  EXPECT_EQ(values({.input_shape = {8}}), 8 + 1);
  EXPECT_EQ(values({.input_shape = {5, 8}}), 5 * 8 + 5) << "a class for each of 5";
  EXPECT_EQ(values({.input_shape = {5, 8}, .loss = "mse"}), 5 * 8 + 5 * 6);
}

TEST(Sequential, ChecksClassesAndLookUpsAsIndices) {
  using torch::nn::Embedding, torch::nn::Flatten;
  const auto indices = [](const std::function<Sequential()>& make, const SequentialConfig& config) {
    return model_of(make, config)->spec.indices;
  };
  using Indices = std::vector<IndexRange>;
  const auto net = [] { return Sequential(Linear(8, 6)); };
  EXPECT_EQ(indices(net, {.input_shape = {5, 8}}), (Indices{{40, 45, 6}}));
  EXPECT_EQ(indices(net, {.input_shape = {5, 8}, .loss = "mse"}), Indices());
  const auto words = [] { return Sequential(Embedding(30, 4), Flatten(), Linear(12, 6)); };
  EXPECT_EQ(indices(words, {.input_shape = {3}, .input_dtype = DType::i64}),
            (Indices{{0, 3, 30}, {3, 4, 6}}));
}

TEST(Sequential, HoldsNoWeights) {
  Linear linear(8, 4);
  const auto model = model_of([&] { return Sequential(linear); });
  EXPECT_EQ(linear->weight.numel(), 0);
  EXPECT_EQ(linear->bias.numel(), 0);
  EXPECT_EQ(model->spec.num_parameters(), 8 * 4 + 4);
}

TEST(Sequential, InitializesWeightsAsAfterManualSeed) {
  const auto make = [] {
    Linear first(8, 4), second(4, 2);
    return Sequential(first, second);
  };
  const auto model = model_of(make);
  torch::manual_seed(77);
  const auto expected = make()->parameters();
  std::vector<torch::Tensor> values;
  std::vector<std::byte*> pointers;
  for (const ParamSpec& param : model->spec.params) {
    values.push_back(torch::zeros(param.tensor.shape()));
    pointers.push_back(static_cast<std::byte*>(values.back().data_ptr()));
  }
  model->initialize(77, pointers);
  for (std::size_t p = 0; p < values.size(); ++p) EXPECT_TRUE(values[p].equal(expected[p])) << p;
  model->initialize(78, pointers);
  EXPECT_FALSE(values[0].equal(expected[0]));
}

TEST(Sequential, DetectsAFunctionThatMakesAnotherModel) {
  std::int64_t size = 4;
  const auto model = model_of([&] { return Sequential(Linear(8, size)); });
  size = 5;
  std::vector<std::byte> memory(256);
  std::vector<std::byte*> pointers(2, memory.data());
  EXPECT_THROW(model->initialize(1, pointers), Error);
}

TEST(Sequential, LeasesALayerUntilItsGraphIsGone) {
  const auto model = model_of([] { return Sequential(Linear(8, 4)); });
  const auto weight = torch::ones({4, 8}), bias = torch::zeros({4});
  const auto rows = torch::ones({kRows, 9});
  const std::vector<at::Tensor> inputs{rows}, params{weight, bias};
  LayerResult result = model->layers[0]->forward(inputs, params, {});
  EXPECT_TRUE(result.output.equal(torch::full({kRows, 4}, 8.0f)));
  ASSERT_EQ(result.leaves.size(), 2u);
  EXPECT_EQ(result.leaves[0].data_ptr(), weight.data_ptr());
  const auto gradients = torch::autograd::grad({result.output.sum()}, result.leaves);
  EXPECT_TRUE(gradients[0].equal(torch::full({4, 8}, 3.0f)));
  EXPECT_NE(result.lease, nullptr);
  result = {};
  const std::vector<at::Tensor> others{weight * 2, bias + 1};
  result = model->layers[0]->forward(inputs, others, {});
  EXPECT_TRUE(result.output.equal(torch::full({kRows, 4}, 17.0f)));
}

/// Counts the calls of its forward.
struct CountingImpl : torch::nn::Module {
  CountingImpl() : linear(register_module("linear", Linear(8, 8))) {}
  torch::Tensor forward(torch::Tensor x) {
    ++calls;
    return linear(x);
  }
  Linear linear;
  std::atomic<int> calls = 0;
};
TORCH_MODULE(Counting);

/// Forward and backward many times with weights that are all `value`. Returns how often another
/// call came between, or the gradient of the input was another than it must be.
int disturbances(const Layer& layer, const std::atomic<int>& calls, float value) {
  const std::vector<at::Tensor> params{torch::full({8, 8}, value), torch::zeros({8})};
  const auto expected = torch::full({kRows, 8}, value * 8);
  int disturbed = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::vector<at::Tensor> inputs{torch::ones({kRows, 8}).requires_grad_()};
    LayerResult result = layer.forward(inputs, params, {});
    const int before = calls;
    std::this_thread::yield();
    const auto gradient = torch::autograd::grad({result.output.sum()}, {inputs[0]})[0];
    if (calls != before || !gradient.equal(expected)) ++disturbed;
  }
  return disturbed;
}

TEST(Sequential, LetsThreadsTakeTurnsUntilTheirGraphsAreGone) {
  Counting counting;
  const auto model = model_of([&] { return Sequential(Linear(8, 8), counting); });
  std::latch both(2);
  std::atomic<int> disturbed = 0;
  const auto work = [&](float value) {
    both.arrive_and_wait();
    disturbed += disturbances(*model->layers[1], counting->calls, value);
  };
  std::thread other([&] { work(2); });
  work(1);
  other.join();
  EXPECT_EQ(disturbed, 0);
}

TEST(Sequential, NamesWhatCannotBeTrained) {
  const std::string random =
      "draws random numbers in training; only dropout (not in place) may do so";
  EXPECT_EQ(problem_of_child(torch::nn::AlphaDropout(0.1)), random);
  EXPECT_EQ(problem_of_child(Call([](torch::Tensor x) { return x + torch::rand_like(x); })),
            random);
  const std::string once = "must run each of its batch norms once in a forward";
  EXPECT_EQ(problem_of_child(Norms(0)), once);
  EXPECT_EQ(problem_of_child(Norms(2)), once);
  EXPECT_EQ(problem_of_child(Double()),
            "has the parameter 'weight', which must be a float32 tensor on the CPU");
  const std::string in_place = "changes an input, a parameter or a buffer; do not work in place";
  EXPECT_EQ(problem_of_child(Renorm()), in_place);
  EXPECT_EQ(problem_of_child(Remembering()), in_place);
  EXPECT_EQ(problem_of_child(Call([](torch::Tensor x) { return x.detach().relu_(); })), in_place);
  EXPECT_EQ(problem_of_child(Call([](torch::Tensor x) { return x.detach() * 2; })),
            "has an output without a gradient path to its input");
  const std::string output = "must give a float32 tensor whose first dimension is the batch";
  EXPECT_EQ(problem_of_child(torch::nn::Flatten(torch::nn::FlattenOptions().start_dim(0))), output);
  EXPECT_EQ(problem_of_child(Call([](torch::Tensor x) { return x.sum(); })), output);
  EXPECT_EQ(problem_of_child(Call([](torch::Tensor x) { return x.to(torch::kDouble); })), output);
}

TEST(Sequential, RefusesForwardsThatDoNotMapOneTensorToOne) {
  const std::string problem = "must take 1 tensor, as the layers before give it, and give one: ";
  for (const std::string& found :
       {problem_of_child(TwoInputs()), problem_of_child(torch::nn::LSTM(8, 8)),
        problem_of_child(Linear(9, 8)),
        problem_of_child(torch::nn::ReLU(torch::nn::ReLUOptions(true))),
        problem_of_child(Call([](torch::Tensor x) {
          if (x.defined()) throw std::runtime_error("mine");
          return x;
        }))})
    EXPECT_TRUE(found.starts_with(problem)) << found;
}

/// What the children are called with, `x`, gives.
LossSum mean_absolute_error(std::span<const at::Tensor> x) {
  return {.sum = (x[0] - x[1]).abs().sum(), .weight = static_cast<double>(x[0].numel())};
}

TEST(Sequential, TakesALossOfTheUsersOwn) {
  const auto make = [] { return Sequential(Linear(8, 6)); };
  SequentialConfig config{.input_shape = {8}, .loss = "l1", .loss_function = &mean_absolute_error};
  config.target_shape = {6};
  const auto model = model_of(make, config);
  EXPECT_EQ(model->spec.edges[0].tensor.shape()[1], 8 + 6);
  EXPECT_EQ(model->spec.layers.back().kind, "sequential.l1");
  const std::vector<at::Tensor> inputs{torch::full({kRows, 6}, 3.0f), torch::ones({kRows, 14})};
  const LayerResult loss = model->layers.back()->forward(inputs, {}, {});
  EXPECT_EQ(loss.output.item<float>(), 2.0f * 6 * kRows);
  EXPECT_EQ(loss.weight, 6.0 * kRows);
}

TEST(Sequential, RefusesAModelWithoutChildrenOrParameters) {
  EXPECT_EQ(problem_of([] { return Sequential(); }), "is a Sequential without children; add some");
  EXPECT_EQ(problem_of([] { return Sequential(nullptr); }),
            "is a Sequential without children; add some");
  EXPECT_EQ(problem_of([] { return Sequential(torch::nn::ReLU()); }),
            "has nothing to train: its loss depends on no parameter");
}

TEST(Sequential, ChecksItsConfiguration) {
  const auto make = [] { return Sequential(Linear(8, 4)); };
  EXPECT_EQ(problem_of(make, {.input_shape = {8}, .loss = "l1"}),
            "has the loss 'l1'; write cross_entropy or mse, or give a loss_function");
  EXPECT_EQ(problem_of(make, {.input_shape = {8}, .input_dtype = DType::i64, .loss = "mse"}),
            "with the loss mse must have f32 inputs");
  EXPECT_EQ(problem_of(make, {.input_shape = {0, 8}}), "must have inputs of positive sizes");
  EXPECT_EQ(problem_of([] {
              return Sequential(Linear(8, 4), torch::nn::Flatten(),
                                Call([](torch::Tensor x) { return x.sum(1); }));
            }),
            "must end in [B, ..., C] logits for cross_entropy");
  const auto error =
      thrown<ConfigError>([&] { sequential_factory(make, {.input_shape = {8}})(0); });
  EXPECT_EQ(error.field, "train.batch_size");
}

struct TwiceImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x * 2; }
};
TORCH_MODULE(Twice);

struct ThriceImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x * 3; }
};
TORCH_MODULE(Thrice);

/// What layers are told apart by.
Names kinds_of(const std::function<Sequential()>& make, const std::string& name = "") {
  Names kinds;
  const auto model = model_of(make, {.input_shape = {8}, .name = name});
  for (const LayerSpec& layer : model->spec.layers) kinds.push_back(layer.kind);
  return kinds;
}

TEST(Sequential, MakesTheSameLayersAfterOtherModels) {
  const auto twice = [] { return Sequential(Linear(8, 4), Twice()); };
  const Names first = kinds_of(twice);
  EXPECT_EQ(kinds_of(twice), first);
  EXPECT_NE(kinds_of([] { return Sequential(Linear(8, 4), Thrice()); }), first) << "of its shapes";
  EXPECT_NE(kinds_of(twice, "version 2"), first);
  const auto activation = [](double slope) {
    using namespace torch::nn;
    return [=] {
      return Sequential(Linear(8, 4), LeakyReLU(LeakyReLUOptions().negative_slope(slope)));
    };
  };
  EXPECT_EQ(kinds_of(activation(0.1)), kinds_of(activation(0.1)));
  EXPECT_NE(kinds_of(activation(0.1)), kinds_of(activation(0.2))) << "as it prints itself";
  EXPECT_NE(kinds_of([] { return Sequential(Sequential(Linear(8, 4), Twice())); }),
            kinds_of([] { return Sequential(Sequential(Linear(8, 4), Thrice())); }))
      << "inside a child";
}

}  // namespace
}  // namespace spillway
