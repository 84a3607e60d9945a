#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

/// Sizes of a multilayer perceptron; names follow Hugging Face. What a sample looks like comes from
/// the data; as it is here it fits the digits of spillway/data_source.h.
struct MlpConfig {
  std::int64_t input_size = 64;   ///< numbers of a sample, ahead of its label
  double input_scale = 1.0 / 16;  ///< what they are multiplied by
  std::int64_t num_labels = 10;
  std::int64_t num_hidden_layers = 2;
  std::int64_t hidden_size = 128;
  std::string hidden_act = "relu";  ///< relu | gelu | tanh
  double dropout = 0;
  std::vector<std::string> freeze;  ///< patterns, as models/base/freeze.h: what is not trained

  /// Throws ConfigError naming the field (`model.hidden_size`, ...), the value and the remedy.
  void validate() const;
};

}  // namespace spillway
