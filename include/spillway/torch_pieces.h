#pragma once

#include <compare>
#include <cstdint>

namespace spillway {

/// Into how many pieces the layers of a model that PyTorch exported are divided. A layer is divided
/// into the largest number of equal pieces up to the given one. Layers that are not recognised stay
/// whole.
struct TorchPieces {
  std::int64_t attention = 1;   ///< of an attention, by heads
  std::int64_t mlp = 1;         ///< of an MLP, by inner features
  std::int64_t vocabulary = 1;  ///< of embeddings of tokens, and of the output layer, by classes
  std::int64_t linear = 1;      ///< of other linear layers, by outputs
  auto operator<=>(const TorchPieces&) const = default;
};

}  // namespace spillway
