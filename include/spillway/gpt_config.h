#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

/// Sizes of a GPT; names follow Hugging Face.
struct GptConfig {
  std::int64_t vocab_size = 256;
  std::int64_t num_hidden_layers = 6;
  std::int64_t hidden_size = 128;
  std::int64_t num_attention_heads = 4;
  std::int64_t intermediate_size = 0;  ///< 0: 4 * hidden_size
  std::int64_t max_position_embeddings = 64;
  double dropout = 0.1;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-5;
  std::vector<std::string> freeze;  ///< patterns, as models/base/freeze.h: what is not trained

  /// Throws ConfigError naming the field (`model.hidden_size`, ...), the value and the remedy.
  void validate() const;
  /// `intermediate_size`, or what 0 stands for.
  std::int64_t mlp_size() const { return intermediate_size ? intermediate_size : 4 * hidden_size; }
};

}  // namespace spillway
