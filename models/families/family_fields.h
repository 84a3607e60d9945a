#pragma once

#include "core/base/field.h"
#include "spillway/gpt_config.h"
#include "spillway/mlp_config.h"
#include "spillway/resnet_config.h"

/// The fields of the model families, see core/base/field.h. `Config` is the struct, constant or
/// not.
namespace spillway {

// Larger than any real model; products of two such sizes do not overflow.
inline constexpr IntRange kSize{1, 1 << 24};
inline constexpr IntRange kNumLayers{1, 1024};
inline constexpr IntRange kPieces{.min = 1, .max = 64, .word = "auto", .meaning = 0};
inline constexpr NumberRange kBelowOne{.min = 0, .max = 1, .below_max = true};
inline constexpr NumberRange kAboveZero{.min = 0, .above_min = true};
inline constexpr const char* kDropoutText =
    "Probability that an element is dropped; it does not depend on where a sample is computed.";
inline constexpr const char* kFreezeText =
    "Patterns of parameter names, such as `[wte.*, h.0.*]`. Frozen parameters keep their initial "
    "weights and have no gradients and no optimizer state.";

/// The divided layers of a model. `Config` is GptPieces, constant or not.
template <typename Config, typename Visitor>
void visit_gpt_pieces(Config& pieces, Visitor& v) {
  v.field("attention", pieces.attention, kPieces,
          "Number of layers into which an attention layer is divided, by heads. `auto`: as many as "
          "cost little, at least 128 columns each, up to 8.",
          InContract::yes);
  v.field("mlp", pieces.mlp, kPieces,
          "Number of layers into which an MLP is divided, by its inner features. `auto`: at least "
          "512 each, up to 8.",
          InContract::yes);
  v.field("vocabulary", pieces.vocabulary, kPieces,
          "Number of layers into which the embedding and the head are divided, by tokens. `auto`: "
          "at least 2,048 each, up to 8.",
          InContract::yes);
}

template <typename Config, typename Visitor>
void visit_gpt(Config& gpt, Visitor& v) {
  using enum InContract;
  v.field("vocab_size", gpt.vocab_size, kSize,
          "Number of tokens; at least 256 with `data.format: bytes`.", yes);
  v.field("num_hidden_layers", gpt.num_hidden_layers, kNumLayers, "Number of blocks.", yes);
  v.field("hidden_size", gpt.hidden_size, kSize,
          "Width of the residual stream, a multiple of `num_attention_heads`.", yes);
  v.field("num_attention_heads", gpt.num_attention_heads, kSize, "Number of heads of a block.",
          yes);
  v.field("intermediate_size", gpt.intermediate_size, IntRange{0, kSize.max},
          "Width of the MLP in a block; 0: four times `hidden_size`.", yes);
  v.field("max_position_embeddings", gpt.max_position_embeddings, kSize, "Tokens per sample.", yes);
  v.field("dropout", gpt.dropout, kBelowOne, kDropoutText, yes);
  v.field("initializer_range", gpt.initializer_range, kAboveZero,
          "Standard deviation of the initial weights.", yes);
  v.field("layer_norm_eps", gpt.layer_norm_eps, kAboveZero, "Epsilon of the layer norms.", yes);
  if (v.shows(gpt.pieces != GptPieces{})) {
    v.section("pieces", [&](auto& pieces) { visit_gpt_pieces(gpt.pieces, pieces); });
  }
  v.field("freeze", gpt.freeze, TextList{.may_be_empty = true}, kFreezeText, yes);
}

/// `Config` is MlpPieces, constant or not.
template <typename Config, typename Visitor>
void visit_mlp_pieces(Config& pieces, Visitor& v) {
  v.field("hidden", pieces.hidden, kPieces,
          "Number of layers into which a hidden layer is divided, by its outputs. `auto`: at least "
          "512 each, up to 8.",
          InContract::yes);
}

template <typename Config, typename Visitor>
void visit_mlp(Config& mlp, Visitor& v) {
  using enum InContract;
  v.field("num_hidden_layers", mlp.num_hidden_layers, kNumLayers,
          "Number of layers between input and output.", yes);
  v.field("hidden_size", mlp.hidden_size, kSize, "Width of a hidden layer.", yes);
  v.field("hidden_act", mlp.hidden_act, kAny, "Activation function of the hidden layers.", yes);
  v.field("dropout", mlp.dropout, kBelowOne, kDropoutText, yes);
  if (v.shows(mlp.pieces != MlpPieces{})) {
    v.section("pieces", [&](auto& pieces) { visit_mlp_pieces(mlp.pieces, pieces); });
  }
  v.field("freeze", mlp.freeze, TextList{.may_be_empty = true}, kFreezeText, yes);
}

template <typename Config, typename Visitor>
void visit_resnet(Config& resnet, Visitor& v) {
  using enum InContract;
  v.field("hidden_sizes", resnet.hidden_sizes, IntRange{1, 1 << 15},
          "Channels of each stage; each stage after the first halves the picture.", yes);
  v.field("depths", resnet.depths, kNumLayers, "Blocks of each stage.", yes);
  v.field("dropout", resnet.dropout, kBelowOne, kDropoutText, yes);
  v.field("batch_norm_eps", resnet.batch_norm_eps, kAboveZero,
          "Epsilon of batch normalization. Each virtual node is normalized by its own statistics.",
          yes);
  v.field("batch_norm_momentum", resnet.batch_norm_momentum, NumberRange{.min = 0, .max = 1},
          "Momentum of the running statistics, which evaluation uses. They move once per step, by "
          "the mean over virtual nodes.",
          yes);
  v.field("freeze", resnet.freeze, TextList{.may_be_empty = true}, kFreezeText, yes);
}

}  // namespace spillway
