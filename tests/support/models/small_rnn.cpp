#include "tests/support/models/small_rnn.h"

#include <ATen/ATen.h>

#include <tuple>
#include <utility>
#include <vector>

#include "models/text/rnn.h"
#include "tests/support/models/tiny_gpt.h"

namespace spillway::testing {
namespace {

class PlainRnn {
 public:
  using Value = std::function<at::Tensor(const std::string& name)>;

  PlainRnn(const RnnConfig& config, Value value)
      : config_(config.with_defaults()), value_(std::move(value)) {}

  at::Tensor loss(const at::Tensor& tokens) const {
    const std::int64_t context = config_.max_position_embeddings, half = context / 2;
    if (config_.preset == RnnPreset::nmt) {
      const auto [source, h, c] =
          lstm("encoder", embed("encoder.embed", tokens.narrow(1, 0, half)), zeros(), zeros());
      const auto [target, last_h, last_c] =
          lstm("decoder", embed("decoder.embed", tokens.narrow(1, half, half)), h, c);
      return head(attend(target, source), tokens.narrow(1, half + 1, half), "decoder.embed");
    }
    const at::Tensor x = embed("embed", tokens.narrow(1, 0, context));
    const auto [states, h, c] = lstm("lstm", x, zeros(), zeros());
    if (config_.preset == RnnPreset::rnntc) {
      const at::Tensor logits = at::linear(h[-1], value_("head.weight"), value_("head.bias"));
      return cross_entropies(logits, tokens.select(1, context).remainder(config_.num_classes));
    }
    return head(states, tokens.narrow(1, 1, context), "embed");
  }

 private:
  static at::Tensor cross_entropies(const at::Tensor& logits, const at::Tensor& classes) {
    return at::cross_entropy_loss(logits, classes, {}, at::Reduction::Sum);
  }
  static at::Tensor zeros() { return {}; }
  at::Tensor embed(const std::string& name, const at::Tensor& tokens) const {
    return at::embedding(value_(name + ".weight"), tokens);
  }
  /// All layers as torch::nn::LSTM computes them: the last one's states, and hidden and cell states
  /// at the end.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const std::string& name, const at::Tensor& x,
                                                      at::Tensor h, at::Tensor c) const {
    const std::int64_t layers = config_.num_hidden_layers;
    std::vector<at::Tensor> params;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      for (const char* part : {"weight_ih", "weight_hh", "bias_ih", "bias_hh"}) {
        params.push_back(value_(name + "." + part + "_l" + std::to_string(layer)));
      }
    }
    if (!h.defined()) h = c = at::zeros({layers, x.size(0), config_.hidden_size});
    return at::lstm(x, {h, c}, params, /*has_biases=*/true, layers, /*dropout=*/0, /*train=*/true,
                    /*bidirectional=*/false, /*batch_first=*/true);
  }
  at::Tensor attend(const at::Tensor& h, const at::Tensor& source) const {
    const at::Tensor weights = h.matmul(source.transpose(1, 2)).softmax(2);
    return at::cat({weights.matmul(source), h}, 2).matmul(value_("attention.weight").t()).tanh();
  }
  at::Tensor head(const at::Tensor& x, const at::Tensor& targets, const std::string& embed) const {
    const at::Tensor weight =
        value_(config_.tie_word_embeddings ? embed + ".weight" : "head.weight");
    const at::Tensor logits = at::linear(x, weight, value_("head.bias"));
    return cross_entropies(logits.reshape({-1, config_.vocab_size}), targets.reshape({-1}));
  }

  RnnConfig config_;
  Value value_;
};

}  // namespace

RnnConfig small_rnn(RnnPreset preset, double dropout, std::int64_t pieces) {
  RnnConfig config;
  config.preset = preset;
  config.vocab_size = 64;
  config.max_position_embeddings = preset == RnnPreset::nmt ? 20 : 10;
  config.embedding_size = 12;
  config.hidden_size = 16;
  config.num_hidden_layers = 2;
  config.chunk_steps = 4;
  config.num_classes = 5;
  config.dropout = dropout;
  config.pieces.vocabulary = pieces;
  return config;
}

at::Tensor plain_rnn_loss(const RnnConfig& config, const at::Tensor& tokens,
                          const std::function<at::Tensor(const std::string& name)>& value) {
  return PlainRnn(config, value).loss(tokens);
}

TrialConfig rnn_trial(const RnnConfig& model) {
  GptConfig shape = tiny_gpt();
  shape.max_position_embeddings = model.max_position_embeddings;
  TrialConfig trial = tiny_trial("rnn", shape);
  trial.model = [model](std::int64_t vn_size) { return make_rnn(model, vn_size); };
  trial.train.learning_rate = 3e-2;
  trial.train.virtual_nodes = trial.train.reduction_groups = 4;
  return trial;
}

}  // namespace spillway::testing
