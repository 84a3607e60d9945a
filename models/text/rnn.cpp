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

/// The edges of a chunk: one for each of its pieces.
using Chunk = std::vector<int>;
/// The chunks of a stack of LSTM layers, by layer.
using ChunkEdges = std::vector<std::vector<Chunk>>;

void append(std::vector<int>& edges, const Chunk& chunk) {
  edges.insert(edges.end(), chunk.begin(), chunk.end());
}

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
  /// Adds the pieces of a chunk, which read `input` and, unless it is empty, `state`.
  Chunk add_chunk(const std::string& name, const std::vector<std::vector<int>>& params,
                  const Chunk& input, const Chunk& state, const Positions& steps);
  /// Returns the parameters of each piece.
  std::vector<std::vector<int>> add_lstm_params(const std::string& name, std::int64_t layer);
  void add_translation(std::int64_t half);
  std::vector<Chunk> add_attention(const std::vector<Chunk>& decoder,
                                   const std::vector<Chunk>& encoder);
  /// Returns the edge [sample, position, hidden].
  int add_output(const std::vector<Chunk>& chunks, std::int64_t steps, bool with_attention);
  void add_head(int output, const Positions& targets);
  void add_class_head(const ChunkEdges& lstms);

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
  /// The hidden features of a piece begin here.
  std::int64_t first_hidden(int piece) const { return hidden_.size * piece / hidden_pieces(); }
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
  constexpr std::int64_t kGates = 4;
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

Chunk RnnBuilder::add_chunk(const std::string& name, const std::vector<std::vector<int>>& params,
                            const Chunk& input, const Chunk& state, const Positions& steps) {
  const int pieces = hidden_pieces();
  const auto weight = static_cast<std::size_t>(params[0][0]);
  const std::int64_t width = model_.spec().params[weight].tensor.dims.back().size;
  std::vector<int> inputs = input;
  append(inputs, state);
  Chunk chunk;
  for (int piece = 0; piece < pieces; ++piece) {
    const std::int64_t features = first_hidden(piece + 1) - first_hidden(piece);
    LayerSpec spec{.name = pieces > 1 ? fmt::format("{}/{}", name, piece) : name,
                   .kind = kind(state.empty() ? "lstm.first" : "lstm"),
                   .params = params[static_cast<std::size_t>(piece)],
                   .inputs = inputs,
                   .forward_flops = 8 * static_cast<double>(features) *
                                    numbers(steps.size, width + hidden_.size),
                   .saved_elements = numbers(steps.size + 1, width + 6 * features),
                   .piece = piece,
                   .pieces = pieces};
    key_draws(spec);
    const RnnChunk part{.steps = steps,
                        .dropout = config_.dropout,
                        .num_inputs = static_cast<int>(input.size()),
                        .piece = piece};
    chunk.push_back(model_.add_layer(std::move(spec), make_rnn_lstm(part),
                                     floats(steps.size + 1, {"hidden", features})));
  }
  ++num_whole_;
  return chunk;
}

ChunkEdges RnnBuilder::add_lstms(const std::string& name, int embed, std::int64_t steps,
                                 const ChunkEdges& before) {
  ChunkEdges edges;
  for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const std::vector<std::vector<int>> params = add_lstm_params(name, layer);
    Chunk state;
    if (!before.empty()) state = before[static_cast<std::size_t>(layer)].back();
    std::vector<Chunk> chunks;
    for (std::int64_t begin = 0; begin < steps; begin += config_.chunk_steps) {
      const std::size_t chunk = chunks.size();
      const std::int64_t size = std::min(config_.chunk_steps, steps - begin);
      state = add_chunk(fmt::format("{}.{}.{}", name, layer, chunk), params,
                        layer == 0 ? Chunk{embed} : edges.back()[chunk], state,
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
  const std::vector<Chunk> attention = add_attention(decoder.back(), encoder.back());
  add_head(add_output(attention, half, /*with_attention=*/true), {half + 1, half});
}

std::vector<Chunk> RnnBuilder::add_attention(const std::vector<Chunk>& decoder,
                                             const std::vector<Chunk>& encoder) {
  const Dim both{"context_and_hidden", 2 * hidden_.size};
  const int weight =
      model_.add_param(matrix("attention.weight", hidden_, both, lstm_stddev(both.size)));
  const auto positions_of = [&](const Chunk& chunk) {
    const auto edge = static_cast<std::size_t>(chunk.front());
    return model_.spec().edges[edge].tensor.dims[1].size - 1;
  };
  std::int64_t source = 0;
  std::vector<int> encoded;
  for (const Chunk& chunk : encoder) {
    source += positions_of(chunk);
    append(encoded, chunk);
  }
  std::vector<Chunk> attended;
  for (const Chunk& chunk : decoder) {
    const std::int64_t steps = positions_of(chunk);
    std::vector<int> inputs = chunk;
    append(inputs, encoded);
    attended.push_back({add_layer({.name = fmt::format("attention.{}", attended.size()),
                                   .kind = "rnn.attention",
                                   .params = {weight},
                                   .inputs = std::move(inputs),
                                   .forward_flops = 4 * numbers(steps, hidden_.size) *
                                                    static_cast<double>(source + hidden_.size),
                                   .saved_elements = numbers(steps, 4 * hidden_.size + 2 * source) +
                                                     numbers(source, hidden_.size)},
                                  make_rnn_attention(hidden_pieces()), floats(steps, hidden_))});
  }
  return attended;
}

int RnnBuilder::add_output(const std::vector<Chunk>& chunks, std::int64_t steps,
                           bool with_attention) {
  std::vector<int> inputs;
  for (const Chunk& chunk : chunks) append(inputs, chunk);
  return add_layer(
      {.name = "output", .kind = kind("output"), .inputs = std::move(inputs), .forward_flops = 0},
      make_rnn_output(config_.dropout, with_attention, hidden_pieces()), floats(steps, hidden_));
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

void RnnBuilder::add_class_head(const ChunkEdges& lstms) {
  std::vector<int> params;
  model_.add_linear(params, "head", {"class", config_.num_classes}, hidden_,
                    lstm_stddev(hidden_.size));
  LayerSpec spec{.name = "head",
                 .kind = kind("class_head"),
                 .params = std::move(params),
                 .inputs = lstms.back().back()};
  spec.inputs.push_back(tokens_);
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
