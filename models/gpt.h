#pragma once

#include "models/gpt_config.h"
#include "models/model.h"

namespace spillway {

/// A decoder-only transformer: pre-norm, learned positions, tied embedding, causal attention, GELU
/// (tanh), dropout after embedding, attention and mlp. Layers: embed, then attention and mlp per
/// block, then head (final norm, logits by the tied embedding, cross-entropy summed over tokens).
/// A sample is max_position_embeddings + 1 tokens; batch edge "tokens" is [sample, position] i64.
std::unique_ptr<Model> make_gpt(const GptConfig& config, std::int64_t vn_size);

}  // namespace spillway
