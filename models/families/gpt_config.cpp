#include "spillway/gpt_config.h"

#include <string>

#include "models/base/model_checks.h"

namespace spillway {

void GptConfig::validate() const {
  using namespace detail;
  ConfigCheck check("model.");
  const bool has_hidden = require_range(check, hidden_size, 1, kMaxSize, "hidden_size");
  const bool has_vocab = require_range(check, vocab_size, 1, kMaxSize, "vocab_size");
  const bool has_mlp = require_range(check, intermediate_size, 0, kMaxSize, "intermediate_size");
  const bool has_positions =
      require_range(check, max_position_embeddings, 1, kMaxSize, "max_position_embeddings");
  require_range(check, num_hidden_layers, 1, kMaxLayers, "num_hidden_layers");
  if (require_range(check, num_attention_heads, 1, kMaxSize, "num_attention_heads") && has_hidden) {
    check.require(hidden_size % num_attention_heads == 0, "num_attention_heads",
                  "is " + std::to_string(num_attention_heads) +
                      ", which does not divide model.hidden_size " + std::to_string(hidden_size) +
                      "; heads are equal slices of the channels");
  }
  require_dropout(check, dropout);
  require_positive(check, initializer_range, "initializer_range");
  require_positive(check, layer_norm_eps, "layer_norm_eps");
  if (has_hidden && require_tensor(check, 3 * hidden_size, hidden_size, "hidden_size")) {
    const char* mlp = intermediate_size ? "intermediate_size" : "hidden_size";
    if (has_mlp) require_tensor(check, mlp_size(), hidden_size, mlp);
    if (has_vocab) require_tensor(check, vocab_size, hidden_size, "vocab_size");
    if (has_positions)
      require_tensor(check, max_position_embeddings, hidden_size, "max_position_embeddings");
  }
  check.finish();
}

}  // namespace spillway
