#pragma once

#include "core/base/field.h"

/// The fields of TorchPieces, see core/base/field.h. `Config` is TorchPieces, constant or not.
namespace spillway {

template <typename Config, typename Visitor>
void visit_torch_pieces(Config& pieces, Visitor& v) {
  using enum InContract;
  constexpr IntRange kNumber{1, 64};
  v.field("attention", pieces.attention, kNumber,
          "Pieces of an attention, by heads. As for the other keys, a layer has the largest number "
          "up to this one that divides it evenly. Layers that are not recognised stay whole; if "
          "there are no others, that is an error.",
          yes);
  v.field("mlp", pieces.mlp, kNumber, "Pieces of an MLP, by its inner features.", yes);
  v.field(
      "vocabulary", pieces.vocabulary, kNumber,
      "Pieces of an embedding of tokens, by tokens, and of the output layer, by classes, if the "
      "loss is cross entropy.",
      yes);
  v.field("linear", pieces.linear, kNumber,
          "Pieces of any linear layer that is not divided in another way, by its outputs.", yes);
}

}  // namespace spillway
