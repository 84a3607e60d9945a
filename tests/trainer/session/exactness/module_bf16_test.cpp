#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "spillway/error.h"
#include "spillway/tensor_source.h"
#include "tests/support/check/thrown.h"
#include "tests/support/models/padded_graph.h"
#include "tests/support/models/small_nets.h"
#include "tests/support/run/interrupted.h"
#include "tests/support/run/plain_training.h"
#include "tests/support/run/training_run.h"

/// `train.dtype: bf16` for modules of a user's own.
namespace spillway::testing {
namespace {

TrialConfig in_bf16(TrialConfig trial) {
  trial.train.dtype = FloatType::bf16;
  return trial;
}

/// A trial's bits over budgets and lanes.
void expect_same_bits_everywhere(const TrialConfig& fp32) {
  const TrialConfig trial = in_bf16(fp32);
  const TrialResult resident = train(session_of(1, kAmple), trial).trials[0];
  ASSERT_NO_FATAL_FAILURE(expect_same_bits_when_spilled(trial, resident));
  const TrialResult whole = train(session_of(1, kAmple), fp32).trials[0];  // the control
  expect_other_bits(whole, resident);
  EXPECT_NEAR(resident.losses[0] / whole.losses[0], 1, 0.02);
}

class HalfNet : public ::testing::TestWithParam<SmallNet> {};

TEST_P(HalfNet, KeepsTheBitsOfAResidentRunWhenSpilledOverLanes) {
  expect_same_bits_everywhere(net_trial(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(ModuleBf16, HalfNet, ::testing::ValuesIn(small_nets()),
                         [](const auto& test) { return test.param.name; });

TEST(ModuleBf16, KeepsTheBitsOfAGraphWhenSpilledOverLanes) {
  expect_same_bits_everywhere(padded_trial());
}

TEST(ModuleBf16, ResumesWithTheSameBits) {
  const TrialConfig trial = in_bf16(net_trial(small_nets()[1]));
  const TrialResult whole = train(session_of(1, kAmple), trial).trials[0];
  const Interrupted interrupted(trial);
  TrialConfig other = interrupted.continued(trial);
  other.train.dtype = FloatType::fp32;
  Session session(session_of(1, kAmple));
  const std::string said = thrown<ConfigError>([&] { session.submit(other); }).what();
  EXPECT_NE(said.find("train.dtype: was bf16, is not set"), std::string::npos) << said;
  expect_same_bits(
      train(session_of(2, smallest_budget(trial)), with_lanes(interrupted.continued(trial), {1, 1}))
          .trials[0],
      whole);
}

/// 12 numbers -> 4 numbers.
torch::nn::Sequential norm_regression() {
  using namespace torch::nn;
  Linear wide(LinearOptions(12, 128).bias(false)), last(128, 4);
  return Sequential(wide, BatchNorm1d(128), Tanh(), last);
}

/// The numbers of a virtual node's errors are a power of two: their mean rounds like their sum.
TrialConfig norm_regression_trial() {
  const SequentialConfig config{.input_shape = {12}, .loss = "mse"};
  const auto inputs = made_up(200, config);
  TrialConfig trial = net_trial({"half", &norm_regression, config});
  trial.train.optimizer = OptimizerKind::sgd;  // AdamW multiplies differences in rounding
  trial.train.learning_rate = 0.1;
  trial.data = tensor_data(inputs, inputs.narrow(1, 0, 4) * inputs.narrow(1, 4, 4), 0.2);
  return trial;
}

/// With nothing but LibTorch: weights in fp32, of which each step computes with bf16 copies.
std::vector<double> bf16_plain_losses(const TrialConfig& trial) {
  torch::manual_seed(trial.train.seed);
  const auto weights = norm_regression()->parameters();
  const auto half = [](const torch::Tensor& x) { return x.to(torch::kBFloat16); };
  return plain_training(trial, weights, [&](const torch::Tensor& rows) {
    const auto x = torch::linear(half(rows.narrow(1, 0, 12)), half(weights[0]));
    const auto normal = torch::batch_norm(x, weights[1], weights[2], {}, {}, /*training=*/true,
                                          /*momentum=*/0.1, /*eps=*/1e-5, /*cudnn_enabled=*/false);
    const auto y = torch::linear(torch::tanh(normal), half(weights[3]), half(weights[4]));
    return torch::mse_loss(y.to(torch::kFloat), rows.narrow(1, 12, 4));
  });
}

TEST(ModuleBf16, HasTheLossesOfPlainTraining) {
  const TrialConfig trial = norm_regression_trial();
  const auto spilled =
      train(session_of(1, smallest_budget(in_bf16(trial))), in_bf16(trial)).trials[0];
  const auto plain = bf16_plain_losses(trial);
  ASSERT_EQ(spilled.losses.size(), 10u) << spilled.reason;
  EXPECT_LT(largest_difference(spilled.losses, plain), 1e-4);
  const TrialResult whole = train(session_of(1, kAmple), trial).trials[0];  // the control
  EXPECT_GT(largest_difference(whole.losses, plain), 1e-4);
}

/// The types that modules and the loss saw, by name.
class SeenTypes {
 public:
  void note(const std::string& name, const torch::Tensor& x) {
    const std::lock_guard lock(mutex_);
    types_[name] = x.scalar_type();
  }
  std::map<std::string, torch::ScalarType> types() const { return types_; }

 private:
  std::mutex mutex_;
  std::map<std::string, torch::ScalarType> types_;
};

struct SeeingImpl : torch::nn::Module {
  explicit SeeingImpl(SeenTypes& types)
      : linear(register_module("linear", torch::nn::Linear(8, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        seen(types) {
    table = register_buffer("table", torch::ones({8}));
  }
  torch::Tensor forward(torch::Tensor x, torch::Tensor ids) {
    seen.note("x", x);
    seen.note("ids", ids);
    seen.note("table", table);
    seen.note("linear.weight", linear->weight);
    seen.note("norm.weight", norm->weight);
    seen.note("norm.running_mean", norm->running_mean);
    return norm(linear(x)).to(torch::kFloat) * table * ids;  // rounded behind the module
  }
  torch::nn::Linear linear;
  torch::nn::BatchNorm1d norm;
  torch::Tensor table;
  SeenTypes& seen;
};
TORCH_MODULE(Seeing);

TEST(ModuleBf16, RoundsAllButNormsIndicesAndTheLoss) {
  SeenTypes seen;
  const auto make = [&](Graph& graph) {
    const auto x = graph.input({8});
    const auto ids = graph.input({1}, DType::i64);
    const auto target = graph.input({8});
    const auto y = graph.add("seeing", Seeing(seen), {x, ids});
    const auto z = graph.apply("twice",
                               [&](std::span<const torch::Tensor> in) {
                                 seen.note("y", in[0]);
                                 return in[0] * 2;
                               },
                               {y});
    const auto loss = [&](std::span<const torch::Tensor> in) {
      seen.note("output", in[0]);
      seen.note("target", in[1]);
      return squared_error(in);
    };
    graph.loss("loss", loss, {z, target});
  };
  TrialConfig trial = in_bf16(padded_trial());
  trial.model = graph_factory(make);
  trial.data = tensor_data(torch::ones({200, 9}), torch::ones({200, 8}), 0.2);
  const TrialResult result = train(session_of(1, kAmple), trial).trials[0];
  ASSERT_EQ(result.state, TrialState::done) << result.reason;
  for (const auto& [name, type] : seen.types()) {
    const bool is_whole = name.starts_with("norm") || name == "output" || name == "target";
    EXPECT_EQ(type, name == "ids" ? torch::kLong
                    : is_whole    ? torch::kFloat
                                  : torch::kBFloat16)
        << name;
  }
  EXPECT_EQ(seen.types().size(), 9u);
}

/// Multiplies by a matrix of its own making.
struct MixingImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) { return x.matmul(torch::ones({128, 128})); }
};
TORCH_MODULE(Mixing);

TEST(ModuleBf16, NamesALayerThatMixesTypes) {
  TrialConfig trial = net_trial(small_nets()[3]);
  const auto make = [] {
    using torch::nn::Linear;
    return torch::nn::Sequential(Linear(12, 128), Mixing(), Linear(128, 3));
  };
  trial.model = sequential_factory(make, small_nets()[3].config);
  Session session(session_of(1, kAmple));
  session.submit(trial);
  const std::string said = thrown<Error>([&] { session.submit(in_bf16(trial)); }).what();
  EXPECT_NE(said.find("layer 1: "), std::string::npos) << said;
  EXPECT_NE(said.find("dtype"), std::string::npos) << said;
}

}  // namespace
}  // namespace spillway::testing
