#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spillway/choices.h"

namespace spillway {

/// Into how many pieces the layers of a multilayer perceptron are divided, as in GptPieces.
struct MlpPieces {
  std::int64_t hidden = 1;  ///< of a hidden layer, by its outputs
  bool operator==(const MlpPieces&) const = default;
};

/// Sizes of a multilayer perceptron; names follow Hugging Face. The data decides the shape of a
/// sample; the defaults fit the digits of spillway/data_source.h.
struct MlpConfig {
  std::int64_t input_size = 64;              ///< values of a sample before its label
  double input_scale = 1.0 / 16;             ///< factor for these values
  std::int64_t num_labels = 10;              ///< classes
  std::int64_t num_hidden_layers = 2;        ///< layers between input and output
  std::int64_t hidden_size = 128;            ///< width of a hidden layer
  Activation hidden_act = Activation::relu;  ///< of hidden layers
  double dropout = 0;                        ///< probability
  MlpPieces pieces;                          ///< of its layers
  std::vector<std::string> freeze;  ///< patterns of parameters to freeze, see models/base/freeze.h

  /// Throws ConfigError that names the field (`model.hidden_size`, ...), the value and the remedy.
  void validate() const;
  /// `pieces` with numbers in place of 0: the largest power of two up to 8 that leaves a piece at
  /// least 512 outputs.
  MlpPieces num_pieces() const;
};

}  // namespace spillway
