#include "tests/support/models/small_nets.h"

#include <torch/torch.h>

#include "spillway/tensor_source.h"
#include "tests/support/models/short_training.h"

namespace spillway::testing {
namespace {

/// x + relu(linear(x)).
struct ResidualImpl : torch::nn::Module {
  explicit ResidualImpl(std::int64_t size)
      : linear(register_module("linear", torch::nn::Linear(size, size))) {}
  torch::Tensor forward(torch::Tensor x) { return x + torch::relu(linear(x)); }
  torch::nn::Linear linear;
};
TORCH_MODULE(Residual);

}  // namespace

torch::nn::Sequential conv_net() {
  using namespace torch::nn;
  Conv2d conv(Conv2dOptions(1, 8, 3).padding(1)), deeper(Conv2dOptions(8, 16, 3).padding(1));
  Linear wide(256, 128), last(128, 10);
  Residual first(128), second(128), third(128);
  return Sequential(conv, ReLU(), MaxPool2d(2), deeper, Functional(torch::relu), Flatten(), wide,
                    first, second, third, last);
}

torch::nn::Sequential norm_net() {
  using namespace torch::nn;
  Conv2d conv(Conv2dOptions(1, 8, 3).padding(1).bias(false));
  Conv2d deeper(Conv2dOptions(8, 16, 3).padding(1).bias(false));
  Linear wide(LinearOptions(256, 128).bias(false)), last(128, 10);
  Residual first(128), second(128);
  return Sequential(conv, BatchNorm2d(8), ReLU(), MaxPool2d(2), deeper, BatchNorm2d(16), ReLU(),
                    Flatten(), wide, BatchNorm1d(BatchNorm1dOptions(128).momentum(std::nullopt)),
                    first, second, last);
}

torch::nn::Sequential embedding_net() {
  using namespace torch::nn;
  Embedding embedding(40, 24);
  Linear wide(6 * 24, 128), last(128, 10);
  Residual first(128), second(128), third(128);
  return Sequential(embedding, Flatten(), wide, Tanh(), first, second, third, last);
}

torch::nn::Sequential regression_net() {
  using namespace torch::nn;
  Linear wide(12, 128), last(128, 3);
  Residual first(128), second(128), third(128);
  return Sequential(wide, first, LayerNorm(LayerNormOptions({128})), second, third, last);
}

std::vector<SmallNet> small_nets() {
  return {{"conv", &conv_net, {.input_shape = {1, 8, 8}}},
          {"norm", &norm_net, {.input_shape = {1, 8, 8}}},
          {"embedding", &embedding_net, {.input_shape = {6}, .input_dtype = DType::i64}},
          {"regression", &regression_net, {.input_shape = {12}, .loss = "mse"}}};
}

torch::Tensor made_up(std::int64_t samples, const SequentialConfig& config) {
  std::vector<std::int64_t> shape{samples};
  shape.insert(shape.end(), config.input_shape.begin(), config.input_shape.end());
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  const auto numbers = torch::arange(count);
  if (config.input_dtype == DType::i64) return (numbers * numbers + 3).remainder(37).view(shape);
  return torch::sin(numbers.to(torch::kFloat) * 0.37).view(shape);
}

TrialConfig net_trial(const SmallNet& net) {
  constexpr std::int64_t kSamples = 200;
  const auto inputs = made_up(kSamples, net.config);
  const auto flat = inputs.view({kSamples, -1});
  const auto targets =
      net.config.loss == "mse"
          ? flat.narrow(1, 0, 3) * flat.narrow(1, 4, 3)
          : (flat.to(torch::kFloat).sum(1) * 3).to(torch::kInt64).remainder(10).abs();
  TrialConfig trial;
  trial.name = net.name;
  trial.model = sequential_factory(net.make, net.config);
  trial.data = tensor_data(inputs, targets, 0.2);
  trial.train = short_training(3e-3);
  trial.train.weight_decay = 0.1;
  trial.train.max_grad_norm = 0.5;
  return trial;
}

}  // namespace spillway::testing
