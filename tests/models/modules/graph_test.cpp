#include "spillway/graph.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/model.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/run_layers.h"

namespace spillway {
namespace {

using testing::thrown;
using torch::nn::Linear;
using Names = std::vector<std::string>;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kGraphSamples = 3;

std::unique_ptr<Model> model_of(const std::function<void(Graph&)>& make) {
  return graph_factory(make)(kGraphSamples);
}

/// What is wrong with a graph.
std::string problem_of(const std::function<void(Graph&)>& make) {
  const auto error = thrown<ConfigError>([&] { model_of(make); });
  EXPECT_EQ(error.field, "model");
  return error.problem;
}

/// Initial values of all parameters.
Tensors initial_values(const Model& model, std::uint64_t seed) {
  Tensors values;
  std::vector<std::byte*> pointers;
  for (const ParamSpec& param : model.spec.params) {
    values.push_back(torch::zeros(
        param.tensor.shape(), param.tensor.dtype == DType::i64 ? torch::kInt64 : torch::kFloat));
    pointers.push_back(static_cast<std::byte*>(values.back().data_ptr()));
  }
  model.initialize(seed, pointers);
  return values;
}

/// a * weight + b.
struct ScaledSumImpl : torch::nn::Module {
  explicit ScaledSumImpl(torch::Tensor scale) { weight = register_parameter("weight", scale); }
  torch::Tensor forward(torch::Tensor a, torch::Tensor b) { return a * weight + b; }
  torch::Tensor weight;
};
TORCH_MODULE(ScaledSum);

/// Dropout as a module, twice as a function, and whole channels.
struct DroppingImpl : torch::nn::Module {
  DroppingImpl() : dropout(register_module("dropout", torch::nn::Dropout(0.5))) {}
  torch::Tensor forward(torch::Tensor x) {
    const auto again = torch::nn::functional::dropout(
        x, torch::nn::functional::DropoutFuncOptions().p(0.5).training(is_training()));
    return torch::cat({dropout(x), again, torch::feature_dropout(x, 0.5, is_training())}, 2);
  }
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Dropping);

/// Adds a constant table and picks columns by constant numbers.
struct TableImpl : torch::nn::Module {
  TableImpl() {
    table = register_buffer("table", torch::arange(4).to(torch::kFloat));
    columns = register_buffer("columns", torch::tensor({2, 0}, torch::kInt64));
  }
  torch::Tensor forward(torch::Tensor x) { return (x + table).index_select(1, columns); }
  torch::Tensor table, columns;
};
TORCH_MODULE(Table);

/// Two inputs, a mask, a join; the batch has f32 values.
void two_towers(Graph& graph) {
  const auto ids = graph.indices({5}, 9);
  const auto numbers = graph.input({4});
  const auto classes = graph.indices({}, 3);
  const auto words = graph.add("words", torch::nn::Embedding(9, 4), {ids});
  const auto mask = graph.apply(
      "mask", [](std::span<const at::Tensor> x) { return x[0].ne(0).unsqueeze(2).to(at::kFloat); },
      {ids});
  const auto mean = graph.apply(
      "mean", [](std::span<const at::Tensor> x) { return (x[0] * x[1]).sum(1); }, {words, mask});
  const auto join = graph.add("join", ScaledSum(torch::full({4}, 2.0f)), {mean, numbers});
  const auto head = graph.add("head", Linear(4, 3), {join});
  graph.loss("loss", &cross_entropy, {head, classes});
}

TEST(Graph, MakesALayerOfEachCall) {
  const auto model = model_of(two_towers);
  const ModelSpec& spec = model->spec;
  Names layers, params;
  for (const LayerSpec& layer : spec.layers) layers.push_back(layer.name);
  for (const ParamSpec& param : spec.params) params.push_back(param.name);
  EXPECT_EQ(layers, (Names{"words", "mask", "mean", "join", "head", "loss"}));
  EXPECT_EQ(params, (Names{"words.weight", "join.weight", "head.weight", "head.bias"}));
  EXPECT_EQ(spec.edges[0].tensor,
            (TensorSpec{DType::f32, {{"sample", kGraphSamples}, {"value", 5 + 4 + 1}}}));
  EXPECT_EQ(spec.indices, (std::vector<IndexRange>{{0, 5, 9}, {9, 10, 3}}));
  EXPECT_EQ(spec.layers[3].inputs, (std::vector<int>{3, 0}));
  EXPECT_EQ(spec.layers[0].inputs, (std::vector<int>{0}));
  EXPECT_FALSE(spec.edges[2].differentiable) << "a mask has no gradient";
  EXPECT_TRUE(spec.edges[1].differentiable);
  EXPECT_NO_THROW(spec.validate());
}

TEST(Graph, ComputesWhatTheModulesCompute) {
  const auto model = model_of(two_towers);
  const Tensors values = initial_values(*model, 5);
  torch::manual_seed(5);
  torch::nn::Embedding words(9, 4);
  Linear head(4, 3);
  EXPECT_TRUE(values[0].equal(words->weight)) << "the order of manual_seed";
  const auto ids =
      torch::tensor({1, 2, 0, 0, 0, 3, 4, 5, 6, 0, 8, 0, 0, 0, 0}).view({kGraphSamples, 5});
  const auto numbers = torch::sin(torch::arange(4 * kGraphSamples).to(torch::kFloat)).view({-1, 4});
  const auto rows =
      torch::cat({ids.to(torch::kFloat), numbers, torch::ones({kGraphSamples, 1})}, 1);
  const LayerResult loss = testing::run_layers(*model, values, rows).last;
  const auto mean = (words(ids) * ids.ne(0).unsqueeze(2)).sum(1);
  const auto expected = torch::cross_entropy_loss(head(mean * 2 + numbers),
                                                  torch::ones({kGraphSamples}, torch::kInt64), {},
                                                  at::Reduction::Sum);
  EXPECT_TRUE(loss.output.equal(expected));
  EXPECT_EQ(loss.weight, kGraphSamples);
}

TEST(Graph, KeysDropoutInsideAModule) {
  const auto model = model_of([](Graph& graph) {
    const auto x = graph.input({6, 10});
    const auto dropped = graph.add("drop", Dropping(), {x});
    const auto out = graph.add("out", Linear(30, 1), {dropped});
    graph.loss("loss", &squared_error, {out, graph.input({6, 1})});
  });
  const Tensors rows{torch::ones({kGraphSamples, 66})};
  const auto dropped = [&](const LayerContext& context) {
    return model->layers[0]->forward(rows, {}, context).output;
  };
  const LayerContext once{.random = {.seed = 1, .step = 2, .vn = 3}};
  LayerContext later = once;
  later.random.step = 3;
  torch::manual_seed(3);
  const auto untouched = torch::rand({2});
  torch::manual_seed(3);
  const auto first = dropped(once);
  EXPECT_TRUE(dropped(once).equal(first));
  EXPECT_TRUE(torch::rand({2}).equal(untouched)) << "no number of LibTorch's generator is used";
  EXPECT_FALSE(dropped(later).equal(first));
  EXPECT_FALSE(first.narrow(2, 0, 10).equal(first.narrow(2, 10, 10))) << "each call has a draw";
  EXPECT_TRUE(first.eq(0).logical_or(first.eq(2)).all().item<bool>());
  const auto channels = first.narrow(2, 20, 10);
  EXPECT_TRUE(channels.eq(channels.narrow(2, 0, 1)).all().item<bool>()) << "whole channels";
  EXPECT_FALSE(channels.eq(channels[0][0][0]).all().item<bool>());
  LayerContext evaluation = once;
  evaluation.training = false;
  EXPECT_TRUE(dropped(evaluation).equal(torch::ones({kGraphSamples, 6, 30})));
}

/// The control of the test above.
TEST(Graph, LeavesDropoutOutsideOfLayersToLibTorch) {
  torch::manual_seed(3);
  const auto first = torch::dropout(torch::ones({100}), 0.5, true);
  EXPECT_FALSE(torch::dropout(torch::ones({100}), 0.5, true).equal(first));
  torch::manual_seed(3);
  EXPECT_TRUE(torch::dropout(torch::ones({100}), 0.5, true).equal(first));
}

TEST(Graph, AllowsSixteenCallsOfDropout) {
  const auto times = [](int calls) {
    return [calls](Graph& graph) {
      const auto hidden = graph.add("hidden", Linear(4, 4), {graph.input({4})});
      const auto dropped = graph.apply("many",
                                       [calls](std::span<const at::Tensor> x) {
                                         at::Tensor y = x[0];
                                         for (int i = 0; i < calls; ++i)
                                           y = torch::dropout(y, 0.1, true);
                                         return y;
                                       },
                                       {hidden});
      graph.loss("loss", &squared_error, {dropped, graph.input({4})});
    };
  };
  EXPECT_NO_THROW(model_of(times(16)));
  EXPECT_THROW(model_of(times(17)), Error);
}

TEST(Graph, KeepsBuffersConstant) {
  const auto model = model_of([](Graph& graph) {
    const auto hidden = graph.add("hidden", Linear(4, 4), {graph.input({4})});
    const auto picked = graph.add("table", Table(), {hidden});
    graph.loss("loss", &squared_error, {picked, graph.input({2})});
  });
  const ParamSpec& table = model->spec.params[2];
  EXPECT_EQ(table.name, "table.table");
  EXPECT_FALSE(table.trainable || table.decay || table.is_statistic());
  EXPECT_EQ(model->spec.params[3].tensor.dtype, DType::i64);
  const Tensors values = initial_values(*model, 1);
  const Tensors inputs{torch::zeros({kGraphSamples, 4})};
  const auto picked = [&](const Tensors& params) {
    return model->layers[1]->forward(inputs, params, {}).output;
  };
  EXPECT_TRUE(picked({values[2], values[3]}).equal(torch::tensor({{2.f, 0.f}}).repeat({3, 1})));
  EXPECT_TRUE(picked({values[2] * 2, torch::tensor({1, 3})})
                  .equal(torch::tensor({{2.f, 6.f}}).repeat({3, 1})))
      << "they are read where they lie";
}

/// y -> y * weight^T.
struct OutputImpl : torch::nn::Module {
  explicit OutputImpl(const torch::Tensor& tied) { weight = register_parameter("weight", tied); }
  torch::Tensor forward(torch::Tensor x) { return torch::linear(x, weight); }
  torch::Tensor weight;
};
TORCH_MODULE(Output);

/// A head that multiplies by the embedding's weights, and a module in two places.
void tied_ends(Graph& graph) {
  const torch::nn::Embedding words(9, 4);
  const Linear hidden(4, 4);
  const auto x = graph.add("words", words, {graph.indices({}, 9)});
  const auto y = graph.add("first", hidden, {x});
  const auto z = graph.add("second", hidden, {y});
  const auto logits = graph.add("head", Output(words->weight), {z});
  graph.loss("loss", &cross_entropy, {logits, graph.indices({}, 9)});
}

TEST(Graph, HasTiedParametersOnce) {
  const auto model = model_of(tied_ends);
  const ModelSpec& spec = model->spec;
  Names names;
  for (const ParamSpec& param : spec.params) names.push_back(param.name);
  EXPECT_EQ(names, (Names{"words.weight", "first.weight", "first.bias"}));
  EXPECT_EQ(spec.layers[1].params, spec.layers[2].params);
  EXPECT_EQ(spec.layers[3].params, (std::vector<int>{0}));
  const Tensors values = initial_values(*model, 5);
  torch::manual_seed(5);
  EXPECT_TRUE(values[0].equal(torch::nn::Embedding(9, 4)->weight));
}

/// Layers with tied parameters have modules of their own: graphs of both are alive at once.
TEST(Graph, SeparatesLayersWithTiedParameters) {
  const auto model = model_of(tied_ends);
  const Tensors x{torch::ones({kGraphSamples, 4}).requires_grad_()};
  const Tensors ones{torch::ones({4, 4}), torch::zeros({4})},
      twos{torch::full({4, 4}, 2.f), ones[1]};
  LayerResult first = model->layers[1]->forward(x, ones, {});
  LayerResult second = model->layers[2]->forward(x, twos, {});  // its lease is another one
  EXPECT_TRUE(torch::autograd::grad({first.output.sum()}, {x[0]})[0].eq(4).all().item<bool>());
  EXPECT_TRUE(torch::autograd::grad({second.output.sum()}, {x[0]})[0].eq(8).all().item<bool>());
}

/// A weight and a view of it.
struct ViewedImpl : torch::nn::Module {
  ViewedImpl() {
    weight = register_parameter("weight", torch::ones({4, 4}));
    rows = register_parameter("rows", weight.detach().view({16}));
  }
  torch::Tensor forward(torch::Tensor x) { return torch::linear(x, weight) * rows.sum(); }
  torch::Tensor weight, rows;
};
TORCH_MODULE(Viewed);

TEST(Graph, RefusesAViewOfAParameter) {
  EXPECT_EQ(problem_of([](Graph& graph) {
              const auto viewed = graph.add("viewed", Viewed(), {graph.input({4})});
              graph.loss("loss", &squared_error, {viewed, graph.input({4})});
            }),
            "layer 'viewed' has the parameter 'rows', which is a view of another one; tie "
            "parameters by using the same tensor");
}

/// hidden -> `add` -> loss.
std::function<void(Graph&)> around(const std::function<Graph::Node(Graph&, Graph::Node)>& add) {
  return [add](Graph& graph) {
    const auto hidden = graph.add("hidden", Linear(4, 4), {graph.input({4})});
    graph.loss("loss", &squared_error, {add(graph, hidden), graph.input({4})});
  };
}

TEST(Graph, NamesWhatIsWrong) {
  using Inputs = std::span<const at::Tensor>;
  const auto apply = [](const Graph::Function& function) {
    return problem_of(
        around([&](Graph& graph, Graph::Node x) { return graph.apply("mine", function, {x}); }));
  };
  EXPECT_EQ(apply([](Inputs x) { return x[0] + torch::rand({4}); }),
            "layer 'mine' draws random numbers in training; only dropout (not in place) may do so");
  EXPECT_EQ(apply([](Inputs x) { return x[0].detach().add_(1); }),
            "layer 'mine' changes an input, a parameter or a buffer; do not work in place");
  EXPECT_EQ(apply([](Inputs x) { return x[0].sum(); }),
            "layer 'mine' must give a float32 tensor whose first dimension is the batch");
  EXPECT_EQ(apply([](Inputs) -> at::Tensor { throw std::runtime_error("mine"); }),
            "layer 'mine' mine");
  EXPECT_EQ(problem_of(around([](Graph& graph, Graph::Node x) {
              return graph.add("hidden", Linear(4, 4), {x});
            })),
            "layer 'hidden' has the name of another one; give each a name of its own");
  EXPECT_EQ(problem_of(around([](Graph& graph, Graph::Node) {
              return graph.add("other", Linear(4, 4), {Graph::Node{77}});
            })),
            "layer 'other' has an input that is no node of this graph");
  EXPECT_EQ(problem_of(around([](Graph& graph, Graph::Node x) {
              graph.add("other", Linear(4, 4), {x});
              return x;
            })),
            "layer 'other' is read by no other layer; use its output, or remove it");
  EXPECT_EQ(problem_of(around([](Graph& graph, Graph::Node x) {
              return graph.add("norm2", torch::nn::BatchNorm1d(5), {x});
            })).rfind("module 'norm2' (torch::nn::BatchNorm1dImpl) must take 1 tensor", 0),
            0u);
  EXPECT_EQ(problem_of([](Graph& graph) { graph.add("a", Linear(4, 4), {graph.input({4})}); }),
            "has no loss; add one");
  EXPECT_EQ(problem_of([](Graph& graph) {
              const auto x = graph.add("a", Linear(4, 4), {graph.input({4})});
              graph.loss("loss", [](Inputs y) { return LossSum{y[0], 1}; }, {x});
            }),
            "layer 'loss' must give the sum of the losses as a float32 tensor without dimensions");
  EXPECT_EQ(problem_of([](Graph& graph) {
              const auto x = graph.add("a", Linear(4, 4), {graph.input({4})});
              graph.loss("loss", [](Inputs y) { return LossSum{y[0].sum(), -1}; }, {x});
            }),
            "layer 'loss' gives the weight -1, must be at least 0");
  EXPECT_EQ(problem_of([](Graph& graph) {
              const auto x = graph.input({4});
              graph.loss("loss", &squared_error, {x, graph.input({4})});
            }),
            "has nothing to train: its loss depends on no parameter");
}

TEST(Graph, RejectsMetricsThatGiveOtherSums) {
  const auto problem = [](Metric metric) {
    return problem_of([&](Graph& graph) {
      const auto x = graph.add("a", Linear(4, 4), {graph.input({4})});
      graph.loss("loss", &squared_error, {x, graph.input({4})}, {metric});
    });
  };
  Metric metric = r_squared();
  metric.spec.num_sums = 3;
  EXPECT_EQ(problem(metric),
            "layer 'loss, metric r2' must give its 3 sums as a float32 or float64 tensor [3]");
  metric.sums = nullptr;
  EXPECT_EQ(problem(metric),
            "layer 'loss, metric r2' must have num_sums and a function sums, or neither");
}

}  // namespace
}  // namespace spillway
