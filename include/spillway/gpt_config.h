#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

/// Into how many pieces the layers of a GPT are divided. A piece is a layer of its own, so a layer
/// that is larger than a device trains in pieces. Their number changes the order of additions: a
/// trial with other pieces starts from the same weights, but has other bits. 0: as many as cost
/// little, a function of the other sizes.
struct GptPieces {
  std::int64_t attention = 1;   ///< of an attention layer, by heads
  std::int64_t mlp = 1;         ///< of an MLP, by its inner features
  std::int64_t vocabulary = 1;  ///< of the embedding and of the head, by tokens
  bool operator==(const GptPieces&) const = default;
};

/// Sizes of a GPT; names follow Hugging Face.
struct GptConfig {
  std::int64_t vocab_size = 256;              ///< number of tokens
  std::int64_t num_hidden_layers = 6;         ///< blocks
  std::int64_t hidden_size = 128;             ///< divisible by num_attention_heads
  std::int64_t num_attention_heads = 4;       ///< heads per block
  std::int64_t intermediate_size = 0;         ///< width of the MLP; 0: 4 * hidden_size
  std::int64_t max_position_embeddings = 64;  ///< tokens per sample
  double dropout = 0.1;                       ///< probability
  double initializer_range = 0.02;            ///< standard deviation of initial weights
  double layer_norm_eps = 1e-5;               ///< epsilon of layer norms
  GptPieces pieces;                           ///< of its layers
  std::vector<std::string> freeze;  ///< patterns of parameters to freeze, see models/base/freeze.h

  /// Throws ConfigError that names the field (`model.hidden_size`, ...), the value and the remedy.
  void validate() const;
  /// `intermediate_size`, or its value if that is 0.
  std::int64_t mlp_size() const { return intermediate_size ? intermediate_size : 4 * hidden_size; }
  /// `pieces` with numbers in place of 0: the largest powers of two up to 8 that leave a piece at
  /// least 128 columns of heads, 512 features or 2,048 tokens.
  GptPieces num_pieces() const;
};

}  // namespace spillway
