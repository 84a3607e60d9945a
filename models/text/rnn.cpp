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

/// What a chunk reads: an edge, from a row on.
struct Input {
  int edge;
  std::int64_t begin;
};

/// Some steps of an LSTM layer.
struct Chunk {
  std::string name;
  std::vector<int> edges;  ///< one for each piece
};
/// The chunks of a stack of LSTM layers, by layer.
using Chunks = std::vector<std::vector<Chunk>>;

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
      const Chunks lstms = add_lstms("lstm", add_embed("embed", {0, context}), context, {});
      add_class_head(join(lstms.back().back()));
    } else if (config_.preset == RnnPreset::nmt) {
      add_translation(context / 2);
    } else {
      const Chunks lstms = add_lstms("lstm", add_embed("embed", {0, context}), context, {});
      add_head(add_output(join(lstms.back()), context, /*with_attention=*/false), {1, context});
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
  Chunks add_lstms(const std::string& name, int embed, std::int64_t steps, const Chunks& before);
  /// Adds the pieces of a chunk.
  Chunk add_chunk(std::string name, const std::vector<std::vector<int>>& params,
                  const std::vector<int>& inputs, const Positions& steps);
  /// Returns the parameters of each piece.
  std::vector<std::vector<int>> add_lstm_params(const std::string& name, std::int64_t layer);
  /// Returns the edge of a chunk. Pieces are put together by another layer for each layer that
  /// reads the chunk, so that their backwards wait for no other layer's (EdgeSpec::reading_pieces).
  /// That layer copies the first `rows` rows, and its name ends with `suffix`.
  int join(const Chunk& chunk, std::int64_t rows = 2, const char* suffix = "");
  std::vector<int> join(const std::vector<Chunk>& chunks);
  /// What a chunk of the first layer reads: the embedding or, in pieces, a copy of some steps of
  /// it.
  Input embedded(int embed, std::size_t chunk, const Positions& steps);
  int add_join(std::string name, std::vector<int> inputs, const Positions& rows,
               const Dim& features);
  void add_translation(std::int64_t half);
  std::vector<int> add_attention(const std::vector<int>& decoder, const std::vector<int>& encoder);
  /// Returns the edge [sample, position, hidden].
  int add_output(std::vector<int> chunks, std::int64_t steps, bool with_attention);
  void add_head(int output, const Positions& targets);
  void add_class_head(int chunk);

  /// Appends a layer of the undivided model, or the last one of what stands for it. Its dropout
  /// does not depend on pieces.
  int add_layer(LayerSpec spec, std::unique_ptr<Layer> layer, TensorSpec output) {
    key_draws(spec);
    ++num_whole_;
    return model_.add_layer(std::move(spec), std::move(layer), std::move(output));
  }
  void key_draws(LayerSpec& spec) {
    const auto position = static_cast<int>(model_.spec().layers.size());
    if (position != num_whole_) spec.draws_as = num_whole_;
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
  int vocabulary_pieces() const { return static_cast<int>(config_.pieces.vocabulary); }
  int hidden_pieces() const { return static_cast<int>(config_.pieces.hidden); }
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
  for (int i = 0; i < vocabulary_pieces(); ++i) {
    embeddings_.push_back(model_.add_piece(
        matrix(name + ".weight", vocabulary_, embedding_, kStddev), i, vocabulary_pieces()));
  }
  if (vocabulary_pieces() > 1) return add_divided_embed(name, positions);
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
  for (int i = 0; i < vocabulary_pieces(); ++i) {
    const int weight = embeddings_[static_cast<std::size_t>(i)];
    const std::int64_t first = model_.spec().params[static_cast<std::size_t>(weight)].stored.begin;
    sum = model_.add_term({.name = fmt::format("{}/{}", name, i),
                           .kind = "rnn.embed.piece",
                           .params = {weight},
                           .inputs = {tokens_},
                           .forward_flops = 0,
                           .saved_elements = 2 * numbers(positions.size, embedding_.size),
                           .piece = i,
                           .pieces = vocabulary_pieces()},
                          make_embed_piece(first, positions),
                          {.name = name + ".sum", .tensor = floats(positions.size, embedding_)});
  }
  return add_layer({.name = name, .kind = "rnn.embed.sum", .inputs = {sum}, .forward_flops = 0},
                   make_rnn_embed_sum(), floats(positions.size, embedding_));
}

std::vector<std::vector<int>> RnnBuilder::add_lstm_params(const std::string& name,
                                                          std::int64_t layer) {
  const Dim gates{"gates", kGates * hidden_.size};
  const Dim in = layer == 0 ? embedding_ : Dim{"hidden_in", hidden_.size};
  const double stddev = lstm_stddev(hidden_.size);
  const auto name_of = [&](const char* part) {
    return fmt::format("{}.{}_l{}", name, part, layer);
  };
  const std::vector<ParamSpec> whole{
      matrix(name_of("weight_ih"), gates, in, stddev),
      matrix(name_of("weight_hh"), gates, hidden_, stddev),
      {.name = name_of("bias_ih"), .tensor = {DType::f32, {gates}}, .decay = false},
      {.name = name_of("bias_hh"), .tensor = {DType::f32, {gates}}, .decay = false}};
  std::vector<std::vector<int>> params(static_cast<std::size_t>(hidden_pieces()));
  for (int piece = 0; piece < hidden_pieces(); ++piece) {
    for (const ParamSpec& param : whole) {
      params[static_cast<std::size_t>(piece)].push_back(
          model_.add_piece(param, piece, hidden_pieces(), kGates));
    }
  }
  return params;
}

Chunk RnnBuilder::add_chunk(std::string name, const std::vector<std::vector<int>>& params,
                            const std::vector<int>& inputs, const Positions& steps) {
  Chunk chunk{std::move(name), {}};
  std::int64_t first = 0;
  for (int piece = 0; piece < hidden_pieces(); ++piece) {
    const std::vector<int>& of_piece = params[static_cast<std::size_t>(piece)];
    const auto weight_ih = static_cast<std::size_t>(of_piece[0]);
    const std::vector<Dim>& dims = model_.spec().params[weight_ih].tensor.dims;
    const std::int64_t features = dims[0].size / kGates, width = dims[1].size;
    LayerSpec spec{
        .name = hidden_pieces() > 1 ? fmt::format("{}/{}", chunk.name, piece) : chunk.name,
        .kind = kind(inputs.size() > 1 ? "lstm" : "lstm.first"),
        .params = of_piece,
        .inputs = inputs,
        .forward_flops =
            8 * static_cast<double>(features) * numbers(steps.size, width + hidden_.size),
        .saved_elements = numbers(steps.size + 1, width + 6 * features),
        .piece = piece,
        .pieces = hidden_pieces()};
    key_draws(spec);
    chunk.edges.push_back(model_.add_layer(
        std::move(spec),
        make_rnn_lstm({.steps = steps, .dropout = config_.dropout, .first = first}),
        floats(steps.size + 1, {"hidden", features})));
    first += features;
  }
  ++num_whole_;
  return chunk;
}

int RnnBuilder::join(const Chunk& chunk, std::int64_t rows, const char* suffix) {
  if (chunk.edges.size() == 1) return chunk.edges[0];
  return add_join(chunk.name + suffix, chunk.edges, {0, rows}, hidden_);
}

std::vector<int> RnnBuilder::join(const std::vector<Chunk>& chunks) {
  std::vector<int> edges;
  for (const Chunk& chunk : chunks) edges.push_back(join(chunk));
  return edges;
}

Input RnnBuilder::embedded(int embed, std::size_t chunk, const Positions& steps) {
  if (hidden_pieces() == 1) return {embed, steps.begin};
  const std::string& name = model_.spec().edges[static_cast<std::size_t>(embed)].name;
  return {add_join(fmt::format("{}.{}", name, chunk), {embed}, steps, embedding_), 0};
}

int RnnBuilder::add_join(std::string name, std::vector<int> inputs, const Positions& rows,
                         const Dim& features) {
  return model_.add_layer({.name = std::move(name),
                           .kind = "rnn.join",
                           .inputs = std::move(inputs),
                           .forward_flops = 0,
                           .saved_elements = numbers(rows.size, features.size)},
                          make_rnn_join(rows), floats(rows.size, features));
}

Chunks RnnBuilder::add_lstms(const std::string& name, int embed, std::int64_t steps,
                             const Chunks& before) {
  Chunks layers;
  for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const std::vector<std::vector<int>> params = add_lstm_params(name, layer);
    const Chunk* last = nullptr;
    if (!before.empty()) last = &before[static_cast<std::size_t>(layer)].back();
    std::vector<Chunk> chunks;
    for (std::int64_t begin = 0; begin < steps; begin += config_.chunk_steps) {
      const std::size_t number = chunks.size();
      const std::int64_t size = std::min(config_.chunk_steps, steps - begin);
      const Input input = layer == 0 ? embedded(embed, number, {begin, size})
                                     : Input{join(layers.back()[number], 1), 0};
      std::vector<int> inputs{input.edge};
      if (last) inputs.push_back(join(*last, 2, ".state"));
      chunks.push_back(add_chunk(fmt::format("{}.{}.{}", name, layer, number), params, inputs,
                                 {input.begin, size}));
      last = &chunks.back();
    }
    layers.push_back(std::move(chunks));
  }
  return layers;
}

void RnnBuilder::add_translation(std::int64_t half) {
  const Chunks encoder = add_lstms("encoder", add_embed("encoder.embed", {0, half}), half, {});
  const Chunks decoder =
      add_lstms("decoder", add_embed("decoder.embed", {half, half}), half, encoder);
  const std::vector<int> encoded = join(encoder.back());
  const std::vector<int> attention = add_attention(join(decoder.back()), encoded);
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
  const int pieces = vocabulary_pieces();
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

void RnnBuilder::add_class_head(int chunk) {
  std::vector<int> params;
  model_.add_linear(params, "head", {"class", config_.num_classes}, hidden_,
                    lstm_stddev(hidden_.size));
  LayerSpec spec{.name = "head",
                 .kind = kind("class_head"),
                 .params = std::move(params),
                 .inputs = {chunk, tokens_}};
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
