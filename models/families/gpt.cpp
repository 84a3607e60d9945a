#include "models/families/gpt.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "models/base/freeze.h"
#include "models/base/model_checks.h"
#include "models/families/gpt_layers.h"
#include "models/text/vocabulary.h"
#include "spillway/loss.h"
#include "spillway/model_builder.h"

namespace spillway {
namespace {

/// A part [begin, end) of what is divided: heads, features or tokens.
struct Part {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Builds a GPT, front to back.
class GptBuilder {
 public:
  GptBuilder(const GptConfig& config, std::int64_t vn_size)
      : config_(config), pieces_(config.num_pieces()), sample_{"sample", vn_size} {}

  std::unique_ptr<Model> build() && {
    pieces_.vocabulary > 1 ? add_divided_embed() : add_embed();
    for (std::int64_t block = 0; block < config_.num_hidden_layers; ++block) {
      const std::string prefix = fmt::format("h.{}.", block);
      pieces_.attention > 1 ? add_divided_attention(prefix) : add_attention(prefix);
      pieces_.mlp > 1 ? add_divided_mlp(prefix) : add_mlp(prefix);
    }
    pieces_.vocabulary > 1 ? add_divided_head() : add_head();
    freeze(model_.spec(), config_.freeze);
    return std::move(model_).build();
  }

 private:
  using Params = std::vector<int>;

  void add_embed();
  void add_attention(const std::string& prefix);
  void add_mlp(const std::string& prefix);
  void add_head();

  void add_tokens();
  void add_divided_embed();
  void add_divided_attention(const std::string& prefix);
  void add_divided_mlp(const std::string& prefix);
  void add_divided_head();
  /// The norm before a divided layer.
  int add_norm_layer(const std::string& name);
  /// What follows one: its sum, with the bias of its projection, is added to the residual stream.
  void add_residual(const std::string& name, const std::string& projection, int sum);
  /// Calls add(i, part) for the pieces of `size`.
  template <typename Add>
  static void for_each_piece(std::int64_t pieces, std::int64_t size, const Add& add) {
    for (std::int64_t i = 0; i < pieces; ++i) {
      add(static_cast<int>(i), Part{size * i / pieces, size * (i + 1) / pieces});
    }
  }
  /// Adds a piece that makes a term of the residual stream's branch `name`.
  int add_term(const std::string& name, LayerSpec spec, std::unique_ptr<Layer> layer) {
    spec.name = fmt::format("{}/{}", name, spec.piece);
    return model_.add_term(std::move(spec), std::move(layer),
                           {.name = name + ".sum", .tensor = stream()});
  }

  TensorSpec stream() const { return {DType::f32, {sample_, position_, channel_}}; }
  int add_matrix(std::string name, Dim rows, Dim columns) {
    return model_.add_param({.name = std::move(name),
                             .tensor = {DType::f32, {std::move(rows), std::move(columns)}},
                             .init = {InitSpec::Kind::normal, config_.initializer_range}});
  }
  void add_norm(Params& params, const std::string& name) {
    const TensorSpec tensor{DType::f32, {channel_}};
    params.push_back(model_.add_param({.name = name + ".weight",
                                       .tensor = tensor,
                                       .init = {InitSpec::Kind::ones},
                                       .decay = false}));
    params.push_back(model_.add_param({.name = name + ".bias", .tensor = tensor, .decay = false}));
  }
  void add_linear(Params& params, const std::string& name, const Dim& out, const Dim& in,
                  double scale = 1) {
    model_.add_linear(params, name, out, in, config_.initializer_range * scale);
  }
  /// Appends a layer of the undivided model, or the last one of what stands for it. Its dropout
  /// does not depend on pieces.
  void add_layer(LayerSpec spec, std::unique_ptr<Layer> layer) {
    const auto position = static_cast<int>(model_.spec().layers.size());
    if (position != num_whole_) spec.draws_as = num_whole_;
    ++num_whole_;
    last_edge_ = model_.add_layer(std::move(spec), std::move(layer), stream());
  }

  /// Costs depend on more than shapes: dropout is part of a layer's kind.
  std::string kind(const std::string& name) const {
    return config_.dropout > 0 ? "gpt." + name + "+dropout" : "gpt." + name;
  }
  double rows() const { return static_cast<double>(sample_.size * position_.size); }
  /// Four products with matrices of [C, H], H channels in all heads, and two of positions with
  /// earlier positions.
  double attention_flops(std::int64_t head_channels) const {
    const auto c = static_cast<double>(channel_.size), p = static_cast<double>(position_.size);
    return rows() * (8 * c + 2 * p) * static_cast<double>(head_channels);
  }
  double residual_scale() const {
    return 1 / std::sqrt(2 * static_cast<double>(config_.num_hidden_layers));
  }

  const GptConfig& config_;
  const GptPieces pieces_;
  ModelBuilder model_{"gpt"};
  const Dim sample_;
  const Dim position_{"position", config_.max_position_embeddings};
  const Dim channel_{"channel", config_.hidden_size};
  const Dim vocabulary_{"vocabulary", config_.vocab_size};
  const Positions inputs_{0, position_.size}, targets_{1, position_.size};
  int tokens_ = -1, last_edge_ = -1;
  std::vector<int> wte_;  // the embedding, or its pieces
  int num_whole_ = 0;     // layers of the undivided model so far
};

void GptBuilder::add_tokens() {
  const Dim tokens{"position", config_.max_position_embeddings + 1};
  tokens_ = model_.add_batch("tokens", {DType::i64, {sample_, tokens}});
  model_.spec().indices = {{0, tokens.size, config_.vocab_size}};
}

void GptBuilder::add_embed() {
  add_tokens();
  wte_ = {add_matrix("wte.weight", vocabulary_, channel_)};
  const int wpe = add_matrix("wpe.weight", position_, channel_);
  add_layer({.name = "embed",
             .kind = kind("embed"),
             .params = {wte_.front(), wpe},
             .inputs = {tokens_},
             .forward_flops = 0,  // a look-up
             .saved_elements = 2 * rows() * static_cast<double>(channel_.size)},
            make_gpt_embed(config_));
}

void GptBuilder::add_attention(const std::string& prefix) {
  const Dim qkv{"qkv", 3 * config_.hidden_size}, value{"value", config_.hidden_size};
  Params params;
  add_norm(params, prefix + "ln_1");
  add_linear(params, prefix + "attn.qkv", qkv, channel_);
  add_linear(params, prefix + "attn.proj", channel_, value, residual_scale());
  add_layer({.name = prefix + "attn",
             .kind = kind(fmt::format("attention/{}", config_.num_attention_heads)),
             .params = std::move(params),
             .inputs = {last_edge_},
             .forward_flops = attention_flops(config_.hidden_size)},
            make_gpt_attention(config_));
}

void GptBuilder::add_mlp(const std::string& prefix) {
  const Dim intermediate{"intermediate", config_.mlp_size()};
  Params params;
  add_norm(params, prefix + "ln_2");
  add_linear(params, prefix + "mlp.fc", intermediate, channel_);
  add_linear(params, prefix + "mlp.proj", channel_, intermediate, residual_scale());
  add_layer({.name = prefix + "mlp",
             .kind = kind("mlp"),
             .params = std::move(params),
             .inputs = {last_edge_}},
            make_gpt_mlp(config_));
}

void GptBuilder::add_head() {
  Params params;
  add_norm(params, "ln_f");
  params.push_back(wte_.front());
  model_.add_loss({.name = "head",
                   .kind = "gpt.head",
                   .params = std::move(params),
                   .inputs = {last_edge_, tokens_}},
                  make_gpt_head(config_));
  model_.spec().metrics = {perplexity().spec};
}

int GptBuilder::add_norm_layer(const std::string& name) {
  Params params;
  add_norm(params, name);
  return model_.add_layer(
      {.name = name, .kind = "gpt.norm", .params = std::move(params), .inputs = {last_edge_}},
      make_gpt_norm(config_), stream());
}

void GptBuilder::add_residual(const std::string& name, const std::string& projection, int sum) {
  const int bias = model_.add_param(
      {.name = projection + ".bias", .tensor = {DType::f32, {channel_}}, .decay = false});
  add_layer({.name = name, .kind = kind("residual"), .params = {bias}, .inputs = {sum, last_edge_}},
            make_gpt_residual(config_));
}

void GptBuilder::add_divided_embed() {
  add_tokens();
  int sum = -1;
  for_each_piece(pieces_.vocabulary, config_.vocab_size, [&](int i, Part tokens) {
    const StoredSlice slice{.name = "wte.weight",
                            .dims = {vocabulary_, channel_},
                            .size = vocabulary_.size,
                            .begin = tokens.begin,
                            .end = tokens.end};
    wte_.push_back(model_.add_part(slice, {{"vocabulary", tokens.size()}, channel_}, i,
                                   config_.initializer_range));
    sum = add_term("embed",
                   {.kind = "gpt.embed.piece",
                    .params = {wte_.back()},
                    .inputs = {tokens_},
                    .forward_flops = 0,
                    .saved_elements = 2 * rows() * static_cast<double>(channel_.size),
                    .piece = i,
                    .pieces = static_cast<int>(pieces_.vocabulary)},
                   make_embed_piece(tokens.begin, inputs_));
  });
  const int wpe = add_matrix("wpe.weight", position_, channel_);
  add_layer({.name = "embed",
             .kind = kind("embed.sum"),
             .params = {wpe},
             .inputs = {sum},
             .forward_flops = 0},
            make_gpt_embed_sum(config_));
}

void GptBuilder::add_divided_attention(const std::string& prefix) {
  const std::int64_t head_size = config_.hidden_size / config_.num_attention_heads;
  const Dim qkv{"qkv", 3 * config_.hidden_size}, value{"value", config_.hidden_size};
  const int norm = add_norm_layer(prefix + "ln_1");
  int sum = -1;
  for_each_piece(pieces_.attention, config_.num_attention_heads, [&](int i, Part heads) {
    const std::int64_t width = heads.size() * head_size;
    StoredSlice slice{.name = prefix + "attn.qkv.weight",
                      .dims = {qkv, channel_},
                      .outer = 3,
                      .size = value.size,
                      .begin = heads.begin * head_size,
                      .end = heads.end * head_size};
    Params params{
        model_.add_part(slice, {{"qkv", 3 * width}, channel_}, i, config_.initializer_range)};
    slice.name = prefix + "attn.qkv.bias";
    slice.dims = {qkv};
    params.push_back(model_.add_part(slice, {{"qkv", 3 * width}}, i, 0));
    slice.name = prefix + "attn.proj.weight";
    slice.dims = {channel_, value};
    slice.outer = channel_.size;
    params.push_back(model_.add_part(slice, {channel_, {"value", width}}, i,
                                     config_.initializer_range * residual_scale()));
    sum = add_term(prefix + "attn",
                   {.kind = fmt::format("gpt.attention.piece/{}", heads.size()),
                    .params = std::move(params),
                    .inputs = {norm},
                    .forward_flops = attention_flops(width),
                    .piece = i,
                    .pieces = static_cast<int>(pieces_.attention)},
                   make_gpt_attention_piece(heads.size()));
  });
  add_residual(prefix + "attn", prefix + "attn.proj", sum);
}

void GptBuilder::add_divided_mlp(const std::string& prefix) {
  const Dim intermediate{"intermediate", config_.mlp_size()};
  const int norm = add_norm_layer(prefix + "ln_2");
  int sum = -1;
  for_each_piece(pieces_.mlp, config_.mlp_size(), [&](int i, Part features) {
    const Dim part{"intermediate", features.size()};
    StoredSlice slice{.name = prefix + "mlp.fc.weight",
                      .dims = {intermediate, channel_},
                      .size = intermediate.size,
                      .begin = features.begin,
                      .end = features.end};
    Params params{model_.add_part(slice, {part, channel_}, i, config_.initializer_range)};
    slice.name = prefix + "mlp.fc.bias";
    slice.dims = {intermediate};
    params.push_back(model_.add_part(slice, {part}, i, 0));
    slice.name = prefix + "mlp.proj.weight";
    slice.dims = {channel_, intermediate};
    slice.outer = channel_.size;
    params.push_back(
        model_.add_part(slice, {channel_, part}, i, config_.initializer_range * residual_scale()));
    sum = add_term(prefix + "mlp",
                   {.kind = "gpt.mlp.piece",
                    .params = std::move(params),
                    .inputs = {norm},
                    .piece = i,
                    .pieces = static_cast<int>(pieces_.mlp)},
                   make_gpt_mlp_piece());
  });
  add_residual(prefix + "mlp", prefix + "mlp.proj", sum);
}

void GptBuilder::add_divided_head() {
  const int norm = add_norm_layer("ln_f");
  std::vector<int> results;
  for_each_piece(pieces_.vocabulary, config_.vocab_size, [&](int i, Part tokens) {
    results.push_back(model_.add_layer({.name = fmt::format("head/{}", i),
                                        .kind = "gpt.head.piece",
                                        .params = {wte_[static_cast<std::size_t>(i)]},
                                        .inputs = {norm, tokens_},
                                        .piece = i,
                                        .pieces = static_cast<int>(pieces_.vocabulary)},
                                       make_head_piece(tokens.begin, targets_),
                                       {DType::f32, {sample_, position_, {"result", 2}}}));
    model_.spec().edges.back().keeps_type = true;
  });
  model_.add_loss({.name = "head", .kind = "gpt.loss", .inputs = std::move(results)},
                  make_vocabulary_loss());
  model_.spec().metrics = {perplexity().spec};
  model_.spec().has_predictions = false;
}

}  // namespace

std::unique_ptr<Model> make_gpt(const GptConfig& config, std::int64_t vn_size) {
  config.validate();
  detail::check_vn_size(vn_size, config.max_position_embeddings * config.hidden_size);
  return GptBuilder(config, vn_size).build();
}

}  // namespace spillway
