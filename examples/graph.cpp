// Trains your own graph of modules: texts of different lengths together with numbers, with a custom
// data source and a custom loss, on devices that cannot hold the training state.
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "spillway/data_source.h"
#include "spillway/graph.h"
#include "spillway/session.h"

using Inputs = std::span<const torch::Tensor>;

constexpr int64_t kLength = 12;  // of the longest text
constexpr int64_t kWords = 500, kNumbers = 4, kWidth = 64;

/// Generated texts, padded with zeros. A sample is kLength words, the length, kNumbers numbers, and
/// the target: the sum of the words that are divisible by 3, scaled by the first number.
class Texts final : public spillway::DataSource {
 public:
  uint64_t num_samples() const override { return 2000; }
  int64_t sample_elements() const override { return kLength + 1 + kNumbers + 1; }
  spillway::DType dtype() const override { return spillway::DType::f32; }

  void read(uint64_t index, std::span<std::byte> row) const override {
    const auto values = spillway::values_of<float>(row);
    uint64_t state = index + 1;
    const auto next = [&](uint64_t limit) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return (state >> 33) % limit;
    };
    const auto length = static_cast<int64_t>(1 + next(kLength));
    float sum = 0;
    for (int64_t i = 0; i < kLength; ++i) {
      const uint64_t word = i < length ? 1 + next(kWords - 1) : 0;
      values[static_cast<size_t>(i)] = static_cast<float>(word);
      if (word % 3 == 0) sum += static_cast<float>(word) / kWords;
    }
    values[kLength] = static_cast<float>(length);
    for (size_t i = 0; i < kNumbers; ++i) {
      values[kLength + 1 + i] = static_cast<float>(next(1000)) / 1000;
    }
    values.back() = sum * values[kLength + 1];
  }
};

/// A transformer block with dropout. `mask` is 1 for words and 0 for padding.
struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        qkv(register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))),
        mlp(register_module("mlp", torch::nn::Linear(kWidth, kWidth))),
        dropout(register_module("dropout", torch::nn::Dropout(0.1))) {}

  torch::Tensor forward(torch::Tensor x, torch::Tensor mask) {
    const auto parts = qkv(norm(x)).chunk(3, 2);
    const auto scores = parts[0].matmul(parts[1].transpose(1, 2)) / std::sqrt(double{kWidth});
    const auto attention = (scores + (mask.transpose(1, 2) - 1) * 1e9).softmax(2);
    return x + dropout(torch::gelu(mlp(attention.matmul(parts[2]))));
  }

  torch::nn::LayerNorm norm;
  torch::nn::Linear qkv, mlp;
  torch::nn::Dropout dropout;
};
TORCH_MODULE(Block);

/// The Huber loss, from predictions [B, 1] and targets [B, 1].
spillway::LossSum huber(Inputs x) {
  return {.sum = torch::huber_loss(x[0], x[1], at::Reduction::Sum),
          .weight = static_cast<double>(x[0].size(0))};
}

void make_network(spillway::Graph& graph) {
  const auto words = graph.indices({kLength}, kWords);
  const auto length = graph.input({1});
  const auto numbers = graph.input({kNumbers});
  const auto target = graph.input({1});

  const auto mask = graph.apply(
      "mask",
      [](Inputs x) {
        return torch::arange(kLength, x[0].options()).lt(x[0]).to(torch::kFloat).unsqueeze(2);
      },
      {length});
  auto text = graph.add("words", torch::nn::Embedding(kWords, kWidth), {words});
  for (const char* name : {"block 1", "block 2", "block 3"}) {
    text = graph.add(name, Block(), {text, mask});
  }
  const auto sum = graph.apply("sum", [](Inputs x) { return (x[0] * x[1]).sum(1); }, {text, mask});
  const auto scale = graph.add("scale", torch::nn::Linear(kNumbers, kWidth), {numbers});
  const auto joined = graph.apply("join", [](Inputs x) { return x[0] * x[1]; }, {sum, scale});
  const auto output = graph.add("output", torch::nn::Linear(kWidth, 1), {joined});
  graph.loss("huber", huber, {output, target});
}

int main() {
  spillway::SessionConfig config;
  config.devices = {{.memory = 1 << 20}, {.memory = 1 << 20}};
  spillway::Session session(config);
  const auto data =
      std::make_shared<spillway::DataSplit>(spillway::split(std::make_shared<Texts>(), 0.1));
  for (const double rate : {1e-3, 3e-3}) {
    spillway::TrialConfig trial;
    trial.name = rate < 2e-3 ? "slow" : "fast";
    trial.model = spillway::graph_factory(make_network);
    trial.data = data;
    trial.train.learning_rate = rate;
    // Most words are rare, so their embeddings have no weight decay.
    trial.train.parameter_groups = {{.pattern = "words.weight", .weight_decay = 0.0}};
    trial.train.reduction_groups = 1;
    session.submit(trial);
  }
  session.run();
  for (const auto& trial : session.result().trials) {
    std::printf("%s %s: %lld bytes of state in %d shards, loss %.3f -> %.3f, evaluated %.3f\n",
                trial.name.c_str(), to_string(trial.state),
                static_cast<long long>(trial.training_state_bytes), trial.num_shards,
                trial.first_loss.value_or(NAN), trial.final_loss.value_or(NAN),
                trial.eval_loss.value_or(NAN));
  }
}
