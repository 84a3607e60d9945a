#include "models/gpt.h"

#include <cmath>
#include <string>
#include <utility>

#include "core/error.h"
#include "models/freeze.h"
#include "models/gpt_layers.h"

namespace spillway {
namespace {

void check_vn_size(const GptConfig& config, std::int64_t vn_size) {
  const auto reject = [&](const std::string& problem) {
    throw ConfigError("train.batch_size", 0,
                      "makes virtual nodes of " + std::to_string(vn_size) + " samples, " + problem);
  };
  const std::int64_t most =
      kMaxTensorElements / (config.max_position_embeddings * config.hidden_size);
  if (vn_size < 1) reject("must be at least 1");
  if (vn_size > most) {
    reject("a model of this size takes at most " + std::to_string(most) +
           "; lower it or raise train.virtual_nodes");
  }
}

/// Puts a GPT together, front to back.
class GptBuilder {
 public:
  GptBuilder(const GptConfig& config, std::int64_t vn_size)
      : config_(config), model_(std::make_unique<Model>()), sample_{"sample", vn_size} {}

  std::unique_ptr<Model> build() && {
    model_->spec.family = "gpt";
    add_embed();
    for (std::int64_t block = 0; block < config_.num_hidden_layers; ++block) {
      const std::string prefix = "h." + std::to_string(block) + ".";
      add_attention(prefix);
      add_mlp(prefix);
    }
    add_head();
    freeze(model_->spec, config_.freeze);
    model_->spec.validate();
    return std::move(model_);
  }

 private:
  using Params = std::vector<int>;

  void add_embed();
  void add_attention(const std::string& prefix);
  void add_mlp(const std::string& prefix);
  void add_head();

  int add_param(std::string name, std::vector<Dim> dims, InitSpec init, bool decay) {
    model_->spec.params.push_back({.name = std::move(name),
                                   .tensor = {DType::f32, std::move(dims)},
                                   .init = init,
                                   .decay = decay});
    return static_cast<int>(model_->spec.params.size()) - 1;
  }
  int add_matrix(std::string name, Dim rows, Dim columns, double scale = 1) {
    return add_param(std::move(name), {std::move(rows), std::move(columns)},
                     {InitSpec::Kind::normal, config_.initializer_range * scale}, true);
  }
  void add_norm(Params& params, const std::string& name) {
    params.push_back(add_param(name + ".weight", {channel_}, {InitSpec::Kind::ones}, false));
    params.push_back(add_param(name + ".bias", {channel_}, {InitSpec::Kind::zeros}, false));
  }
  void add_linear(Params& params, const std::string& name, const Dim& out, const Dim& in,
                  double scale = 1) {
    params.push_back(add_matrix(name + ".weight", out, in, scale));
    params.push_back(add_param(name + ".bias", {out}, {InitSpec::Kind::zeros}, false));
  }

  /// A layer behind the last one. Its output edge carries its name.
  void add_layer(LayerSpec spec, std::unique_ptr<Layer> layer, bool is_loss = false) {
    ModelSpec& model = model_->spec;
    if (!is_loss) {
      spec.outputs = {static_cast<int>(model.edges.size())};
      model.edges.push_back({.name = spec.name,
                             .tensor = {DType::f32, {sample_, position_, channel_}},
                             .producer = static_cast<int>(model.layers.size())});
    }
    model.layers.push_back(std::move(spec));
    model_->layers.push_back(std::move(layer));
  }
  int last_edge() const { return static_cast<int>(model_->spec.edges.size()) - 1; }

  /// Costs depend on more than shapes: whether dropout runs is part of a layer's kind.
  std::string kind(const std::string& name) const {
    return config_.dropout > 0 ? "gpt." + name + "+dropout" : "gpt." + name;
  }
  double residual_scale() const {
    return 1 / std::sqrt(2 * static_cast<double>(config_.num_hidden_layers));
  }

  const GptConfig& config_;
  std::unique_ptr<Model> model_;
  const Dim sample_;
  const Dim position_{"position", config_.max_position_embeddings};
  const Dim channel_{"channel", config_.hidden_size};
  const Dim vocabulary_{"vocabulary", config_.vocab_size};
  int tokens_ = -1, wte_ = -1;
};

void GptBuilder::add_embed() {
  tokens_ = static_cast<int>(model_->spec.edges.size());
  const Dim tokens{"position", config_.max_position_embeddings + 1};
  model_->spec.edges.push_back(
      {.name = "tokens", .tensor = {DType::i64, {sample_, tokens}}, .differentiable = false});
  wte_ = add_matrix("wte.weight", vocabulary_, channel_);
  const int wpe = add_matrix("wpe.weight", position_, channel_);
  add_layer({.name = "embed", .kind = kind("embed"), .params = {wte_, wpe}, .inputs = {tokens_}},
            make_gpt_embed(config_));
}

void GptBuilder::add_attention(const std::string& prefix) {
  const Dim qkv{"qkv", 3 * config_.hidden_size}, value{"value", config_.hidden_size};
  Params params;
  add_norm(params, prefix + "ln_1");
  add_linear(params, prefix + "attn.qkv", qkv, channel_);
  add_linear(params, prefix + "attn.proj", channel_, value, residual_scale());
  const std::string heads = std::to_string(config_.num_attention_heads);
  add_layer({.name = prefix + "attn",
             .kind = kind("attention/" + heads),
             .params = std::move(params),
             .inputs = {last_edge()}},
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
             .inputs = {last_edge()}},
            make_gpt_mlp(config_));
}

void GptBuilder::add_head() {
  Params params;
  add_norm(params, "ln_f");
  params.push_back(wte_);
  add_layer({.name = "head",
             .kind = "gpt.head",
             .params = std::move(params),
             .inputs = {last_edge(), tokens_}},
            make_gpt_head(config_), /*is_loss=*/true);
}

}  // namespace

std::unique_ptr<Model> make_gpt(const GptConfig& config, std::int64_t vn_size) {
  config.validate();
  check_vn_size(config, vn_size);
  return GptBuilder(config, vn_size).build();
}

}  // namespace spillway
