#include "spillway/mlp_config.h"

#include "models/base/model_checks.h"

namespace spillway {

void MlpConfig::validate() const {
  using namespace detail;
  ConfigCheck check("model.");
  const bool has_hidden = require_range(check, hidden_size, 1, kMaxSize, "hidden_size");
  const bool has_input = require_range(check, input_size, 1, kMaxSize, "input_size");
  const bool has_labels = require_range(check, num_labels, 1, kMaxSize, "num_labels");
  require_range(check, num_hidden_layers, 1, kMaxLayers, "num_hidden_layers");
  require_positive(check, input_scale, "input_scale");
  check.require(hidden_act == "relu" || hidden_act == "gelu" || hidden_act == "tanh", "hidden_act",
                "is '" + hidden_act + "', must be relu, gelu or tanh");
  require_dropout(check, dropout);
  if (has_hidden && require_tensor(check, hidden_size, hidden_size, "hidden_size")) {
    if (has_input) require_tensor(check, hidden_size, input_size, "input_size");
    if (has_labels) require_tensor(check, num_labels, hidden_size, "num_labels");
  }
  check.finish();
}

}  // namespace spillway
