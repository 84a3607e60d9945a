#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "spillway/choices.h"

namespace spillway {

/// A known recurrent network. It decides what the model computes, and sizes that are 0.
enum class RnnPreset : std::uint8_t {
  none,   ///< a language model: 2 layers, hidden size 128
  rnntc,  ///< classification of text: 4 layers, hidden size 1024
  rnnlm,  ///< a language model: 2 layers, hidden size 2048
  nmt     ///< translation: encoder and decoder of 2 layers each, attention, hidden size 1024
};
template <>
inline constexpr std::array kNames<RnnPreset>{"none", "rnntc", "rnnlm", "nmt"};  ///< names

/// Into how many pieces the layers of a recurrent network are divided; 0: automatic.
struct RnnPieces {
  std::int64_t vocabulary = 1;  ///< of the embeddings and of the head, by tokens
  /// Of each step of an LSTM layer, by hidden features; at most RnnConfig::max_hidden_pieces().
  /// More than 1 needs chunk_steps 1.
  std::int64_t hidden = 1;
  bool operator==(const RnnPieces&) const = default;
};

/// A recurrent network of LSTMs that reads tokens. A sample is max_position_embeddings + 1 tokens.
/// A language model predicts each token from the second on. A classifier reads all but the last,
/// whose number modulo num_classes is the class of the sample. A translation reads the first half
/// of the context with its encoder and the second half with its decoder, which predicts each next
/// token.
struct RnnConfig {
  RnnPreset preset = RnnPreset::none;         ///< what the model computes
  std::int64_t vocab_size = 256;              ///< number of tokens
  std::int64_t max_position_embeddings = 40;  ///< tokens per sample, the context
  std::int64_t embedding_size = 0;            ///< width of the embedding; 0: hidden_size
  std::int64_t hidden_size = 0;               ///< width of an LSTM layer; 0: that of the preset
  std::int64_t num_hidden_layers = 0;  ///< LSTM layers, of encoder and decoder each; 0: as above
  std::int64_t chunk_steps = 10;       ///< steps of an LSTM layer that are one layer of the model
  std::int64_t num_classes = 2;        ///< of a classifier
  double dropout = 0.1;                ///< of the input of each LSTM layer and of the head
  bool tie_word_embeddings = false;    ///< the head has the matrix of the embedding
  RnnPieces pieces;                    ///< of its layers
  std::vector<std::string> freeze;  ///< patterns of parameters to freeze, see models/base/freeze.h

  /// Throws ConfigError that names the field (`model.hidden_size`, ...), the value and the remedy.
  void validate() const;
  /// The same with numbers in place of 0. Automatic pieces have at least 2,048 tokens or 512
  /// features each.
  RnnConfig with_defaults() const;
  /// Tokens that a sample predicts; 0 if it has one class.
  std::int64_t num_predictions() const;
  /// The most `pieces.hidden`: each has a feature, and an LSTM layer at most 1,024 pieces.
  std::int64_t max_hidden_pieces() const;
  /// Number of layers of the undivided model. The configuration must be valid.
  std::int64_t num_layers() const;
};

}  // namespace spillway
