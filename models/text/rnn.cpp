#include "models/text/rnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "models/base/freeze.h"
#include "models/base/model_checks.h"
#include "models/text/rnn_layers.h"
#include "spillway/loss.h"
#include "spillway/model_builder.h"

namespace spillway {
namespace {

/// That of PyTorch's uniform distribution, whose variance is 1 / (3 * inputs).
double lstm_stddev(std::int64_t inputs) { return 1 / std::sqrt(3 * static_cast<double>(inputs)); }

/// The edges of a stack of LSTM layers: a chunk each, by layer.
using ChunkEdges = std::vector<std::vector<int>>;

/// Builds a recurrent network, front to back.
class RnnBuilder {
 public:
  /// `config` has its defaults.
  RnnBuilder(const RnnConfig& config, std::int64_t vn_size)
      : config_(config), sample_{"sample", vn_size} {}

  std::unique_ptr<Model> build() && {
    const std::int64_t context = config_.max_position_embeddings;
    tokens_ = model_.add_batch("tokens", {DType::i64, {sample_, {"position", context + 1}}});
    model_.spec().indices = {{0, context + 1, config_.vocab_size}};
    if (config_.preset == RnnPreset::rnntc) {
      add_class_head(add_lstms("lstm", add_embed("embed", {0, context}), context, {}));
    } else if (config_.preset == RnnPreset::nmt) {
      add_translation(context / 2);
    } else {
      const ChunkEdges lstms = add_lstms("lstm", add_embed("embed", {0, context}), context, {});
      add_head(add_output(lstms.back(), context, /*with_attention=*/false), {1, context});
    }
    freeze(model_.spec(), config_.freeze);
    return std::move(model_).build();
  }

 private:
  /// Returns the edge [sample, position, embedding].
  int add_embed(const std::string& name, const Positions& positions);
  int add_divided_embed(const std::string& name, const Positions& positions);
  /// Adds LSTM layers that read `embed`. A layer begins with the last state of the same layer in
  /// `before`, if there is one.
  ChunkEdges add_lstms(const std::string& name, int embed, std::int64_t steps,
                       const ChunkEdges& before);
  int add_lstm(std::string name, std::vector<int> params, std::vector<int> inputs,
               const Positions& steps);
  std::vector<int> add_lstm_params(const std::string& name, std::int64_t layer);
  void add_translation(std::int64_t half);
  std::vector<int> add_attention(const std::vector<int>& decoder, const std::vector<int>& encoder);
  /// Returns the edge [sample, position, hidden].
  int add_output(std::vector<int> chunks, std::int64_t steps, bool with_attention);
  void add_head(int output, const Positions& targets);
  void add_class_head(const ChunkEdges& lstms);

  /// Appends a layer of the undivided model, or the last one of what stands for it. Its dropout
  /// does not depend on pieces.
  int add_layer(LayerSpec spec, std::unique_ptr<Layer> layer, TensorSpec output) {
    key_draws(spec);
    return model_.add_layer(std::move(spec), std::move(layer), std::move(output));
  }
  void key_draws(LayerSpec& spec) {
    const auto position = static_cast<int>(model_.spec().layers.size());
    if (position != num_whole_) spec.draws_as = num_whole_;
    ++num_whole_;
  }
  ParamSpec matrix(std::string name, const Dim& out, const Dim& in, double stddev) const {
    return {.name = std::move(name),
            .tensor = {DType::f32, {out, in}},
            .init = {InitSpec::Kind::normal, stddev}};
  }
  /// Costs depend on more than shapes.
  std::string kind(const std::string& name) const {
    return config_.dropout > 0 ? "rnn." + name + "+dropout" : "rnn." + name;
  }
  TensorSpec floats(std::int64_t positions, const Dim& features) const {
    return {DType::f32, {sample_, {"position", positions}, features}};
  }
  int num_pieces() const { return static_cast<int>(config_.pieces.vocabulary); }
  double numbers(std::int64_t positions, std::int64_t features) const {
    return static_cast<double>(sample_.size * positions * features);
  }

  const RnnConfig config_;
  ModelBuilder model_{"rnn"};
  const Dim sample_;
  const Dim embedding_{"embedding", config_.embedding_size};
  const Dim hidden_{"hidden", config_.hidden_size};
  const Dim vocabulary_{"vocabulary", config_.vocab_size};
  int tokens_ = -1;
  std::vector<int> embeddings_;  // the pieces of the last embedding
  int num_whole_ = 0;            // layers of the undivided model so far
};

int RnnBuilder::add_embed(const std::string& name, const Positions& positions) {
  constexpr double kStddev = 0.1;
  embeddings_.clear();
  for (int i = 0; i < num_pieces(); ++i) {
    embeddings_.push_back(model_.add_piece(
        matrix(name + ".weight", vocabulary_, embedding_, kStddev), i, num_pieces()));
  }
  if (num_pieces() > 1) return add_divided_embed(name, positions);
  return add_layer({.name = name,
                    .kind = "rnn.embed",
                    .params = embeddings_,
                    .inputs = {tokens_},
                    .forward_flops = 0,  // a look-up
                    .saved_elements = numbers(positions.size, embedding_.size)},
                   make_rnn_embed(positions), floats(positions.size, embedding_));
}

int RnnBuilder::add_divided_embed(const std::string& name, const Positions& positions) {
  int sum = -1;
  for (int i = 0; i < num_pieces(); ++i) {
    const int weight = embeddings_[static_cast<std::size_t>(i)];
    const std::int64_t first = model_.spec().params[static_cast<std::size_t>(weight)].stored.begin;
    sum = model_.add_term({.name = fmt::format("{}/{}", name, i),
                           .kind = "rnn.embed.piece",
                           .params = {weight},
                           .inputs = {tokens_},
                           .forward_flops = 0,
                           .saved_elements = 2 * numbers(positions.size, embedding_.size),
                           .piece = i,
                           .pieces = num_pieces()},
                          make_embed_piece(first, positions),
                          {.name = name + ".sum", .tensor = floats(positions.size, embedding_)});
  }
  return add_layer({.name = name, .kind = "rnn.embed.sum", .inputs = {sum}, .forward_flops = 0},
                   make_rnn_embed_sum(), floats(positions.size, embedding_));
}

std::vector<int> RnnBuilder::add_lstm_params(const std::string& name, std::int64_t layer) {
  const Dim gates{"gates", 4 * hidden_.size};
  const Dim in = layer == 0 ? embedding_ : Dim{"hidden_in", hidden_.size};
  const double stddev = lstm_stddev(hidden_.size);
  std::vector<int> params;
  params.push_back(
      model_.add_param(matrix(fmt::format("{}.weight_ih_l{}", name, layer), gates, in, stddev)));
  params.push_back(model_.add_param(
      matrix(fmt::format("{}.weight_hh_l{}", name, layer), gates, hidden_, stddev)));
  for (const char* part : {"ih", "hh"}) {
    params.push_back(model_.add_param({.name = fmt::format("{}.bias_{}_l{}", name, part, layer),
                                       .tensor = {DType::f32, {gates}},
                                       .decay = false}));
  }
  return params;
}

int RnnBuilder::add_lstm(std::string name, std::vector<int> params, std::vector<int> inputs,
                         const Positions& steps) {
  const auto weight = static_cast<std::size_t>(params.front());
  const std::int64_t width = model_.spec().params[weight].tensor.dims.back().size;
  const std::int64_t hidden = hidden_.size;
  return add_layer(
      {.name = std::move(name),
       .kind = kind(inputs.size() > 1 ? "lstm" : "lstm.first"),
       .params = std::move(params),
       .inputs = std::move(inputs),
       .forward_flops = 8 * static_cast<double>(hidden) * numbers(steps.size, width + hidden),
       .saved_elements = numbers(steps.size + 1, width + 6 * hidden)},
      make_rnn_lstm({.steps = steps, .dropout = config_.dropout}), floats(steps.size + 1, hidden_));
}

ChunkEdges RnnBuilder::add_lstms(const std::string& name, int embed, std::int64_t steps,
                                 const ChunkEdges& before) {
  ChunkEdges edges;
  for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const std::vector<int> params = add_lstm_params(name, layer);
    int state = before.empty() ? -1 : before[static_cast<std::size_t>(layer)].back();
    std::vector<int> chunks;
    for (std::int64_t begin = 0; begin < steps; begin += config_.chunk_steps) {
      const std::size_t chunk = chunks.size();
      const std::int64_t size = std::min(config_.chunk_steps, steps - begin);
      std::vector<int> inputs{layer == 0 ? embed : edges.back()[chunk]};
      if (state >= 0) inputs.push_back(state);
      state = add_lstm(fmt::format("{}.{}.{}", name, layer, chunk), params, std::move(inputs),
                       {layer == 0 ? begin : 0, size});
      chunks.push_back(state);
    }
    edges.push_back(std::move(chunks));
  }
  return edges;
}

void RnnBuilder::add_translation(std::int64_t half) {
  const ChunkEdges encoder = add_lstms("encoder", add_embed("encoder.embed", {0, half}), half, {});
  const ChunkEdges decoder =
      add_lstms("decoder", add_embed("decoder.embed", {half, half}), half, encoder);
  const std::vector<int> attention = add_attention(decoder.back(), encoder.back());
  add_head(add_output(attention, half, /*with_attention=*/true), {half + 1, half});
}

std::vector<int> RnnBuilder::add_attention(const std::vector<int>& decoder,
                                           const std::vector<int>& encoder) {
  const Dim both{"context_and_hidden", 2 * hidden_.size};
  const int weight =
      model_.add_param(matrix("attention.weight", hidden_, both, lstm_stddev(both.size)));
  const auto positions_of = [&](int edge) {
    return model_.spec().edges[static_cast<std::size_t>(edge)].tensor.dims[1].size - 1;
  };
  std::int64_t source = 0;
  for (const int chunk : encoder) source += positions_of(chunk);
  std::vector<int> edges;
  for (const int chunk : decoder) {
    const std::int64_t steps = positions_of(chunk);
    std::vector<int> inputs{chunk};
    inputs.insert(inputs.end(), encoder.begin(), encoder.end());
    edges.push_back(add_layer({.name = fmt::format("attention.{}", edges.size()),
                               .kind = "rnn.attention",
                               .params = {weight},
                               .inputs = std::move(inputs),
                               .forward_flops = 4 * numbers(steps, hidden_.size) *
                                                static_cast<double>(source + hidden_.size),
                               .saved_elements = numbers(steps, 4 * hidden_.size + 2 * source) +
                                                 numbers(source, hidden_.size)},
                              make_rnn_attention(), floats(steps, hidden_)));
  }
  return edges;
}

int RnnBuilder::add_output(std::vector<int> chunks, std::int64_t steps, bool with_attention) {
  return add_layer(
      {.name = "output", .kind = kind("output"), .inputs = std::move(chunks), .forward_flops = 0},
      make_rnn_output(config_.dropout, with_attention), floats(steps, hidden_));
}

void RnnBuilder::add_head(int output, const Positions& targets) {
  const int pieces = num_pieces();
  std::vector<int> results;
  for (int i = 0; i < pieces; ++i) {
    std::vector<int> params;
    if (config_.tie_word_embeddings) {
      params.push_back(embeddings_[static_cast<std::size_t>(i)]);
    } else {
      params.push_back(model_.add_piece(
          matrix("head.weight", vocabulary_, hidden_, lstm_stddev(hidden_.size)), i, pieces));
    }
    params.push_back(model_.add_piece(
        {.name = "head.bias", .tensor = {DType::f32, {vocabulary_}}, .decay = false}, i, pieces));
    LayerSpec spec{.name = "head",
                   .kind = "rnn.head",
                   .params = std::move(params),
                   .inputs = {output, tokens_}};
    if (pieces == 1) {
      model_.add_loss(std::move(spec), make_rnn_head(targets));
      break;
    }
    spec.name = fmt::format("head/{}", i);
    spec.kind = "rnn.head.piece";
    spec.piece = i;
    spec.pieces = pieces;
    const std::int64_t first = vocabulary_.size * i / pieces;
    results.push_back(model_.add_layer(std::move(spec), make_head_piece(first, targets),
                                       floats(targets.size, {"result", 2})));
    model_.spec().edges.back().keeps_type = true;
  }
  if (pieces > 1) {
    model_.add_loss({.name = "head", .kind = "rnn.loss", .inputs = std::move(results)},
                    make_vocabulary_loss());
    model_.spec().has_predictions = false;
  }
  model_.spec().metrics = {perplexity().spec};
}

void RnnBuilder::add_class_head(const ChunkEdges& lstms) {
  std::vector<int> params;
  model_.add_linear(params, "head", {"class", config_.num_classes}, hidden_,
                    lstm_stddev(hidden_.size));
  LayerSpec spec{.name = "head",
                 .kind = kind("class_head"),
                 .params = std::move(params),
                 .inputs = {lstms.back().back(), tokens_}};
  key_draws(spec);
  model_.add_loss(std::move(spec), make_rnn_class_head(config_.dropout));
  model_.spec().metrics = {accuracy().spec};
}

}  // namespace

std::unique_ptr<Model> make_rnn(const RnnConfig& config, std::int64_t vn_size) {
  config.validate();
  const RnnConfig full = config.with_defaults();
  detail::check_vn_size(
      vn_size, full.max_position_embeddings * std::max(full.embedding_size, full.hidden_size));
  return RnnBuilder(full, vn_size).build();
}

}  // namespace spillway
