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

}  // namespace spillway
