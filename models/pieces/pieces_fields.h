#pragma once

#include "core/base/field.h"

/// The fields of TorchPieces, see core/base/field.h. `Config` is TorchPieces, constant or not.
namespace spillway {

template <typename Config, typename Visitor>
void visit_torch_pieces(Config& pieces, Visitor& v) {
  using enum InContract;
  constexpr IntRange kNumber{1, 64};
  v.field("attention", pieces.attention, kNumber,
          "Number of layers into which an attention is divided, by heads: here and below, the "
          "largest number up to this one that divides it. Layers that are not recognised stay "
          "whole.",
          yes);
  v.field("mlp", pieces.mlp, kNumber,
          "Number of layers into which an MLP is divided, by its inner features.", yes);
  v.field(
      "vocabulary", pieces.vocabulary, kNumber,
      "Number of layers into which an embedding of tokens is divided, by tokens, and the output "
      "layer of a model that is trained by cross entropy, by classes.",
      yes);
  v.field("linear", pieces.linear, kNumber,
          "Number of layers into which any other linear layer is divided, by its outputs.", yes);
}

}  // namespace spillway
