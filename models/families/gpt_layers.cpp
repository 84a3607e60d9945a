#include "models/families/gpt_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include "models/base/compute_type.h"
#include "models/base/dropout.h"

namespace spillway {
namespace {

using Tensors = std::span<const at::Tensor>;

/// Queries, keys and values of some heads, H channels in all: [B, P, 3H] -> [B, P, H].
at::Tensor attend(const at::Tensor& qkv, std::int64_t heads) {
  const std::int64_t samples = qkv.size(0), positions = qkv.size(1), channels = qkv.size(2) / 3;
  const at::Tensor parts = qkv.view({samples, positions, 3, heads, channels / heads});
  const std::vector<at::Tensor> part = parts.unbind(2);  // [B, P, heads, H / heads]
  const at::Tensor mixed = at::scaled_dot_product_attention(
      part[0].transpose(1, 2), part[1].transpose(1, 2), part[2].transpose(1, 2),
      /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
  return mixed.transpose(1, 2).reshape({samples, positions, channels});
}

/// [B, P + 1] -> [B, P]: what the model reads, and what it should say.
at::Tensor inputs_of(const at::Tensor& tokens) { return tokens.narrow(1, 0, tokens.size(1) - 1); }
at::Tensor targets_of(const at::Tensor& tokens) { return tokens.narrow(1, 1, tokens.size(1) - 1); }

class Embed final : public Layer {
 public:
  explicit Embed(const GptConfig& config) : dropout_(config.dropout) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor x = at::add(at::embedding(params[0], inputs_of(inputs[0])), params[1]);
    return {.output = dropout(x, dropout_, context)};
  }

 private:
  double dropout_;
};

class Attention final : public Layer {
 public:
  explicit Attention(const GptConfig& config)
      : heads_(config.num_attention_heads), dropout_(config.dropout), eps_(config.layer_norm_eps) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor& x = inputs[0];
    const at::Tensor norm = layer_norm(x, params[0], params[1], eps_);
    const at::Tensor mixed = attend(at::linear(norm, params[2], params[3]), heads_);
    const at::Tensor branch = at::linear(mixed, params[4], params[5]);
    return {.output = at::add(x, dropout(branch, dropout_, context))};
  }

 private:
  std::int64_t heads_;
  double dropout_, eps_;
};

class Mlp final : public Layer {
 public:
  explicit Mlp(const GptConfig& config) : dropout_(config.dropout), eps_(config.layer_norm_eps) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor& x = inputs[0];
    const at::Tensor norm = layer_norm(x, params[0], params[1], eps_);
    const at::Tensor hidden = at::gelu(at::linear(norm, params[2], params[3]), "tanh");
    const at::Tensor branch = at::linear(hidden, params[4], params[5]);
    return {.output = at::add(x, dropout(branch, dropout_, context))};
  }

 private:
  double dropout_, eps_;
};

class GptHead final : public Layer {
 public:
  explicit GptHead(const GptConfig& config) : eps_(config.layer_norm_eps) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor &x = inputs[0], &tokens = inputs[1], &wte = params[2];
    const at::Tensor norm = layer_norm(x, params[0], params[1], eps_);
    const at::Tensor logits = at::linear(norm.view({-1, x.size(2)}), wte);  // [B * P, V]
    const at::Tensor targets = targets_of(tokens).reshape({-1});
    LayerResult result{.output = cross_entropy_sum(logits, targets),
                       .weight = static_cast<double>(targets.numel())};
    if (!context.training) result.prediction = logits.view({x.size(0), x.size(1), -1});
    return result;
  }

 private:
  double eps_;
};

class Norm final : public Layer {
 public:
  explicit Norm(const GptConfig& config) : eps_(config.layer_norm_eps) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext&) const override {
    return {.output = layer_norm(inputs[0], params[0], params[1], eps_)};
  }

 private:
  double eps_;
};

class EmbedSum final : public Layer {
 public:
  explicit EmbedSum(const GptConfig& config) : dropout_(config.dropout) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor x = at::add(inputs[0], params[0].to(at::kFloat));
    return {.output = dropout(x.to(scalar_type(context.dtype)), dropout_, context)};
  }

 private:
  double dropout_;
};

class AttentionPiece final : public Layer {
 public:
  explicit AttentionPiece(std::int64_t heads) : heads_(heads) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext&) const override {
    const at::Tensor mixed = attend(at::linear(inputs[0], params[0], params[1]), heads_);
    return {.output = at::linear(mixed, params[2]).to(at::kFloat)};
  }

 private:
  std::int64_t heads_;
};

class MlpPiece final : public Layer {
 public:
  LayerResult forward(Tensors inputs, Tensors params, const LayerContext&) const override {
    const at::Tensor hidden = at::gelu(at::linear(inputs[0], params[0], params[1]), "tanh");
    return {.output = at::linear(hidden, params[2]).to(at::kFloat)};
  }
};

class Residual final : public Layer {
 public:
  explicit Residual(const GptConfig& config) : dropout_(config.dropout) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor& x = inputs[1];
    const at::Tensor branch = at::add(inputs[0], params[0].to(at::kFloat)).to(x.scalar_type());
    return {.output = at::add(x, dropout(branch, dropout_, context))};
  }

 private:
  double dropout_;
};

}  // namespace

std::unique_ptr<Layer> make_gpt_embed(const GptConfig& config) {
  return std::make_unique<Embed>(config);
}

std::unique_ptr<Layer> make_gpt_attention(const GptConfig& config) {
  return std::make_unique<Attention>(config);
}

std::unique_ptr<Layer> make_gpt_mlp(const GptConfig& config) {
  return std::make_unique<Mlp>(config);
}

std::unique_ptr<Layer> make_gpt_head(const GptConfig& config) {
  return std::make_unique<GptHead>(config);
}

std::unique_ptr<Layer> make_gpt_norm(const GptConfig& config) {
  return std::make_unique<Norm>(config);
}

std::unique_ptr<Layer> make_gpt_embed_sum(const GptConfig& config) {
  return std::make_unique<EmbedSum>(config);
}

std::unique_ptr<Layer> make_gpt_attention_piece(std::int64_t heads) {
  return std::make_unique<AttentionPiece>(heads);
}

std::unique_ptr<Layer> make_gpt_mlp_piece() { return std::make_unique<MlpPiece>(); }

std::unique_ptr<Layer> make_gpt_residual(const GptConfig& config) {
  return std::make_unique<Residual>(config);
}

}  // namespace spillway
