#pragma once

#include <memory>

#include "spillway/gpt_config.h"
#include "spillway/model.h"

/// The layers of a GPT, all of them in fp32.
///
/// Shapes: B samples, P positions, C channels, V vocabulary, F intermediate. `tokens` is
/// [B, P + 1] i64, each in [0, V): the first P of a sample are inputs, the last P are targets.
/// LibTorch throws c10::Error for another token.
namespace spillway {

/// tokens -> [B, P, C]. Parameters: wte [V, C], wpe [P, C].
std::unique_ptr<Layer> make_gpt_embed(const GptConfig& config);

/// [B, P, C] -> [B, P, C], residual included. Parameters, weight then bias: norm [C], [C]; query,
/// key and value stacked [3C, C], [3C]; projection [C, C], [C].
std::unique_ptr<Layer> make_gpt_attention(const GptConfig& config);

/// [B, P, C] -> [B, P, C], residual included. Parameters, weight then bias: norm [C], [C];
/// expansion [F, C], [F]; projection [C, F], [C].
std::unique_ptr<Layer> make_gpt_mlp(const GptConfig& config);

/// [B, P, C], tokens -> sum of the cross entropies; weight: B * P targets. Parameters: norm weight
/// and bias [C], [C]; wte [V, C].
std::unique_ptr<Layer> make_gpt_head(const GptConfig& config);

/// The layers of a GPT that is divided into pieces. Terms are f32, whatever the layer computes
/// with.

/// A layer norm: [B, P, C] -> [B, P, C]. Parameters: [C], [C].
std::unique_ptr<Layer> make_gpt_norm(const GptConfig& config);

/// The look-up of tokens [first, first + V'): tokens -> term of [B, P, C], zeros for other tokens.
/// Parameters: wte [V', C].
std::unique_ptr<Layer> make_gpt_embed_piece(std::int64_t first);

/// Sum of the terms [B, P, C] -> [B, P, C]. Parameters: wpe [P, C].
std::unique_ptr<Layer> make_gpt_embed_sum(const GptConfig& config);

/// Some heads, H' channels in all: norm [B, P, C] -> term of [B, P, C]. Parameters: query, key and
/// value stacked [3H', C], [3H']; columns of the projection [C, H'].
std::unique_ptr<Layer> make_gpt_attention_piece(std::int64_t heads);

/// Some inner features: norm [B, P, C] -> term of [B, P, C]. Parameters: expansion [F', C], [F'];
/// columns of the projection [C, F'].
std::unique_ptr<Layer> make_gpt_mlp_piece();

/// Sum of the terms [B, P, C], residual stream [B, P, C] -> [B, P, C]. Parameters: bias of the
/// projection [C].
std::unique_ptr<Layer> make_gpt_residual(const GptConfig& config);

/// The logits of tokens [first, first + V'): norm [B, P, C], tokens -> [B, P, 2] f32: the logarithm
/// of the sum of their exponentials, and the target's logit or 0. Parameters: wte [V', C].
std::unique_ptr<Layer> make_gpt_head_piece(std::int64_t first);

/// The results of all pieces -> sum of the cross entropies; weight: B * P targets.
std::unique_ptr<Layer> make_gpt_loss();

}  // namespace spillway
