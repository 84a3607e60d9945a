#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "spillway/graph.h"
#include "spillway/tensor_source.h"
#include "spillway/trial_config.h"
#include "tests/support/models/short_training.h"

/// A graph of modules: two inputs, padded sequences, dropout and a table inside a module, tied
/// weights, a loss of its own.
namespace spillway::testing {

inline constexpr std::int64_t kPaddedLength = 6, kPaddedWords = 40, kPaddedWidth = 48;

/// [B, T, W] and positions that it adds.
struct MixerImpl : torch::nn::Module {
  explicit MixerImpl(double p)
      : linear(register_module("linear", torch::nn::Linear(kPaddedWidth, kPaddedWidth))),
        dropout(register_module("dropout", torch::nn::Dropout(p))) {
    positions = register_buffer(
        "positions", torch::sin(torch::arange(kPaddedLength * kPaddedWidth).to(torch::kFloat))
                         .view({kPaddedLength, kPaddedWidth}));
  }
  torch::Tensor forward(torch::Tensor x, torch::Tensor mask) {
    return x + dropout(torch::tanh(linear(x + positions))) * mask;
  }
  torch::nn::Linear linear;
  torch::nn::Dropout dropout;
  torch::Tensor positions;
};
TORCH_MODULE(Mixer);

/// [B, W] -> [B, words], by the weights of an embedding.
struct TiedHeadImpl : torch::nn::Module {
  explicit TiedHeadImpl(const torch::Tensor& of_embedding) {
    weight = register_parameter("weight", of_embedding);
  }
  torch::Tensor forward(torch::Tensor x) { return torch::linear(x, weight); }
  torch::Tensor weight;
};
TORCH_MODULE(TiedHead);

struct PaddedModules {
  explicit PaddedModules(double dropout)
      : words(kPaddedWords, kPaddedWidth), first(dropout), second(dropout), head(words->weight) {}

  torch::nn::Embedding words;
  Mixer first, second;
  TiedHead head;
};

/// 1 where the sequence goes on: [B] -> [B, T, 1].
inline torch::Tensor padding_mask(const torch::Tensor& lengths) {
  return torch::arange(kPaddedLength, lengths.options())
      .lt(lengths.unsqueeze(1))
      .to(torch::kFloat)
      .unsqueeze(2);
}

/// [B, T, W], [B, T, 1] -> [B, W].
inline torch::Tensor masked_mean(const torch::Tensor& x, const torch::Tensor& mask) {
  return (x * mask).sum(1) / mask.sum(1);
}

/// Longer sequences count more.
inline LossSum length_weighted_loss(std::span<const at::Tensor> x) {
  const auto classes = x[1].reshape({-1});
  const auto losses = torch::cross_entropy_loss(x[0], classes, {}, at::Reduction::None);
  return {.sum = (losses * x[2]).sum(), .weight = x[2].sum().item<double>()};
}

inline void padded_graph(Graph& graph, double dropout) {
  using Inputs = std::span<const at::Tensor>;
  const PaddedModules modules(dropout);
  const auto ids = graph.indices({kPaddedLength}, kPaddedWords);
  const auto length = graph.input({});
  const auto next = graph.indices({}, kPaddedWords);
  const auto mask = graph.apply("mask", [](Inputs x) { return padding_mask(x[0]); }, {length});
  const auto embedded = graph.add("words", modules.words, {ids});
  const auto mixed = graph.add("first", modules.first, {embedded, mask});
  const auto again = graph.add("second", modules.second, {mixed, mask});
  const auto mean =
      graph.apply("mean", [](Inputs x) { return masked_mean(x[0], x[1]); }, {again, mask});
  const auto logits = graph.add("head", modules.head, {mean});
  graph.loss("loss", &length_weighted_loss, {logits, next, length});
}

/// Words that follow from the sum of the words before; [N, T], [N], [N].
inline TrialConfig padded_trial(double dropout = 0.1) {
  constexpr std::int64_t kSamples = 200;
  const auto numbers = torch::arange(kSamples * kPaddedLength);
  const auto lengths = torch::arange(kSamples).remainder(kPaddedLength) + 1;
  const auto ids = (numbers * numbers + 3).remainder(kPaddedWords).view({kSamples, kPaddedLength}) *
                   padding_mask(lengths.to(torch::kFloat)).squeeze(2).to(torch::kInt64);
  const auto next = ids.sum(1).remainder(kPaddedWords);
  TrialConfig trial;
  trial.name = "padded";
  trial.model = graph_factory([dropout](Graph& graph) { padded_graph(graph, dropout); });
  trial.data = tensor_data(
      torch::cat({ids.to(torch::kFloat), lengths.unsqueeze(1).to(torch::kFloat)}, 1), next, 0.2);
  trial.train = short_training(3e-3);
  return trial;
}

}  // namespace spillway::testing
