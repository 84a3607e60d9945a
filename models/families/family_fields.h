#pragma once

#include "models/base/field_ranges.h"
#include "models/pictures/picture_fields.h"
#include "models/text/rnn_fields.h"
#include "spillway/gpt_config.h"
#include "spillway/mlp_config.h"

/// The fields of the model families, see core/base/field.h. `Config` is the struct, constant or
/// not.
namespace spillway {

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

}  // namespace spillway
