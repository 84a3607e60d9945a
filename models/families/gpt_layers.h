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

/// The layers of a GPT that is divided into pieces, beside those of its vocabulary
/// (models/text/vocabulary.h). Terms are f32, whatever the layer computes with.

/// A layer norm: [B, P, C] -> [B, P, C]. Parameters: [C], [C].
std::unique_ptr<Layer> make_gpt_norm(const GptConfig& config);

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

}  // namespace spillway
