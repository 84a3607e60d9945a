#include "models/mlp_config.h"

#include "models/model_checks.h"

namespace spillway {

void MlpConfig::validate() const {
  using namespace detail;
  require_range(input_size, 1, kMaxSize, "input_size");
  require_positive(input_scale, "input_scale");
  require_range(num_labels, 1, kMaxSize, "num_labels");
  require_range(num_hidden_layers, 1, kMaxLayers, "num_hidden_layers");
  require_range(hidden_size, 1, kMaxSize, "hidden_size");
  require(hidden_act == "relu" || hidden_act == "gelu" || hidden_act == "tanh", "hidden_act",
          "is '" + hidden_act + "', must be relu, gelu or tanh");
  require_dropout(dropout);
  require_tensor(hidden_size, hidden_size, "hidden_size");
  require_tensor(hidden_size, input_size, "input_size");
  require_tensor(num_labels, hidden_size, "num_labels");
}

}  // namespace spillway
