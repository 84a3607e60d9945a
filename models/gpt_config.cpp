#include "models/gpt_config.h"

#include <string>

#include "models/model_checks.h"

namespace spillway {

void GptConfig::validate() const {
  using namespace detail;
  require_range(vocab_size, 1, kMaxSize, "vocab_size");
  require_range(num_hidden_layers, 1, kMaxLayers, "num_hidden_layers");
  require_range(hidden_size, 1, kMaxSize, "hidden_size");
  require_range(num_attention_heads, 1, kMaxSize, "num_attention_heads");
  require_range(intermediate_size, 0, kMaxSize, "intermediate_size");
  require_range(max_position_embeddings, 1, kMaxSize, "max_position_embeddings");
  require(hidden_size % num_attention_heads == 0, "num_attention_heads",
          "is " + std::to_string(num_attention_heads) +
              ", which does not divide model.hidden_size " + std::to_string(hidden_size) +
              "; heads are equal slices of the channels");
  require_dropout(dropout);
  require_positive(initializer_range, "initializer_range");
  require_positive(layer_norm_eps, "layer_norm_eps");
  require_tensor(3 * hidden_size, hidden_size, "hidden_size");
  require_tensor(mlp_size(), hidden_size, intermediate_size ? "intermediate_size" : "hidden_size");
  require_tensor(vocab_size, hidden_size, "vocab_size");
  require_tensor(max_position_embeddings, hidden_size, "max_position_embeddings");
}

}  // namespace spillway
