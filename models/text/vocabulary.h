#pragma once

#include <cstdint>
#include <memory>

#include "spillway/model.h"

/// The layers of a model of text whose embedding and head are divided into pieces by tokens. Terms
/// and results are f32, whatever the layers compute with.
///
/// Shapes: B samples, P positions, C channels, V' tokens of a piece. `tokens` is [B, N] i64.
namespace spillway {

/// Some positions of a sample: [begin, begin + size) of N.
struct Positions {
  std::int64_t begin = 0, size = 0;

  /// What `tokens`, or another tensor, has there: [B, N, ...] -> [B, P, ...].
  at::Tensor of(const at::Tensor& tokens) const { return tokens.narrow(1, begin, size); }
};

/// The look-up of tokens [first, first + V') at `inputs`: tokens -> term of [B, P, C], zeros for
/// other tokens. Parameters: [V', C].
std::unique_ptr<Layer> make_embed_piece(std::int64_t first, const Positions& inputs);

/// The logits of tokens [first, first + V'), for the tokens at `targets`: [B, P, C], tokens ->
/// [B, P, 2]: the logarithm of the sum of their exponentials, and the target's logit or 0.
/// Parameters: weight [V', C] and, if there is one, bias [V'].
std::unique_ptr<Layer> make_head_piece(std::int64_t first, const Positions& targets);

/// The results of all pieces -> sum of the cross entropies; weight: B * P targets.
std::unique_ptr<Layer> make_vocabulary_loss();

}  // namespace spillway
