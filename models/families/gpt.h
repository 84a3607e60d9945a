#pragma once

#include "spillway/gpt_config.h"
#include "spillway/model.h"

namespace spillway {

/// A decoder-only transformer: pre-norm, learned positions, tied embedding, causal attention, GELU
/// (tanh), dropout after embedding, attention and mlp. Layers: embed, then attention and mlp per
/// block, then head (final norm, logits by the tied embedding, cross-entropy summed over tokens). A
/// sample is max_position_embeddings + 1 tokens; batch edge "tokens" is [sample, position] i64.
/// The model is GPT-2 without dropout of attention probabilities. Parameters have GPT-2's names,
/// from "wte.weight" to "ln_f.bias", except the four matrices of a block and their biases: attn.qkv
/// is GPT-2's attn.c_attn, attn.proj its attn.c_proj, mlp.fc its mlp.c_fc and mlp.proj its
/// mlp.c_proj, each transposed ([out, in], as in torch::nn::Linear). Initial weights are normal,
/// those of the projections back into the residual stream divided by sqrt(2 * num_hidden_layers),
/// norms ones, biases zeros. Weight decay applies to every matrix, including both embeddings, but
/// to no norm or bias.
/// With GptConfig::pieces, a divided layer is its norm, its pieces and a layer with its name, which
/// adds them up. Its tensors are stored whole, and it starts from the same weights.
/// Throws ConfigError like GptConfig::validate() and freeze(), and (`train.batch_size`) if a
/// virtual node has no sample or too many.
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019; for the
/// pieces, Shoeybi et al., "Megatron-LM", 2019, section 3.
std::unique_ptr<Model> make_gpt(const GptConfig& config, std::int64_t vn_size);

}  // namespace spillway
