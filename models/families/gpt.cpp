#include "models/families/gpt.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "models/base/freeze.h"
#include "models/base/model_checks.h"
#include "models/families/gpt_layers.h"
#include "spillway/loss.h"
#include "spillway/model_builder.h"

namespace spillway {
namespace {

/// Builds a GPT, front to back.
class GptBuilder {
 public:
  GptBuilder(const GptConfig& config, std::int64_t vn_size)
      : config_(config), sample_{"sample", vn_size} {}

  std::unique_ptr<Model> build() && {
    add_embed();
    for (std::int64_t block = 0; block < config_.num_hidden_layers; ++block) {
      const std::string prefix = fmt::format("h.{}.", block);
      add_attention(prefix);
      add_mlp(prefix);
    }
    add_head();
    freeze(model_.spec(), config_.freeze);
    return std::move(model_).build();
  }

 private:
  using Params = std::vector<int>;

  void add_embed();
  void add_attention(const std::string& prefix);
  void add_mlp(const std::string& prefix);
  void add_head();

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
  void add_layer(LayerSpec spec, std::unique_ptr<Layer> layer) {
    last_edge_ = model_.add_layer(std::move(spec), std::move(layer),
                                  {DType::f32, {sample_, position_, channel_}});
  }

  /// Costs depend on more than shapes: dropout is part of a layer's kind.
  std::string kind(const std::string& name) const {
    return config_.dropout > 0 ? "gpt." + name + "+dropout" : "gpt." + name;
  }
  double rows() const { return static_cast<double>(sample_.size * position_.size); }
  /// Four products with matrices of [C, C], and two of positions with earlier positions.
  double attention_flops() const {
    const auto c = static_cast<double>(channel_.size), p = static_cast<double>(position_.size);
    return rows() * (8 * c * c + 2 * p * c);
  }
  double residual_scale() const {
    return 1 / std::sqrt(2 * static_cast<double>(config_.num_hidden_layers));
  }

  const GptConfig& config_;
  ModelBuilder model_{"gpt"};
  const Dim sample_;
  const Dim position_{"position", config_.max_position_embeddings};
  const Dim channel_{"channel", config_.hidden_size};
  const Dim vocabulary_{"vocabulary", config_.vocab_size};
  int tokens_ = -1, wte_ = -1, last_edge_ = -1;
};

void GptBuilder::add_embed() {
  const Dim tokens{"position", config_.max_position_embeddings + 1};
  tokens_ = model_.add_batch("tokens", {DType::i64, {sample_, tokens}});
  model_.spec().indices = {{0, tokens.size, config_.vocab_size}};
  wte_ = add_matrix("wte.weight", vocabulary_, channel_);
  const int wpe = add_matrix("wpe.weight", position_, channel_);
  add_layer({.name = "embed",
             .kind = kind("embed"),
             .params = {wte_, wpe},
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
             .forward_flops = attention_flops()},
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
  params.push_back(wte_);
  model_.add_loss({.name = "head",
                   .kind = "gpt.head",
                   .params = std::move(params),
                   .inputs = {last_edge_, tokens_}},
                  make_gpt_head(config_));
  model_.spec().metrics = {perplexity().spec};
}

}  // namespace

std::unique_ptr<Model> make_gpt(const GptConfig& config, std::int64_t vn_size) {
  config.validate();
  detail::check_vn_size(vn_size, config.max_position_embeddings * config.hidden_size);
  return GptBuilder(config, vn_size).build();
}

}  // namespace spillway
