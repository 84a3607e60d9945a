#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

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
  std::vector<std::string> freeze;  ///< patterns of parameters to freeze, see models/base/freeze.h

  /// Throws ConfigError that names the field (`model.hidden_size`, ...), the value and the remedy.
  void validate() const;
  /// `intermediate_size`, or its value if that is 0.
  std::int64_t mlp_size() const { return intermediate_size ? intermediate_size : 4 * hidden_size; }
};

}  // namespace spillway
