#pragma once

#include <cstdint>
#include <memory>

#include "models/text/vocabulary.h"
#include "spillway/model.h"

/// The layers of a recurrent network. States, gates and softmax are f32 inside a layer.
///
/// Shapes: B samples, P positions, S steps of a chunk, E features of its input, H hidden size, V
/// vocabulary, L classes. A chunk of an LSTM makes [B, S + 1, H]: the hidden state of each step,
/// then the cell state of the last. A piece of it has H' of the H hidden features.
namespace spillway {

/// Number of gates of an LSTM.
inline constexpr std::int64_t kGates = 4;

/// Steps of an LSTM layer, or a piece of one step.
struct RnnChunk {
  Positions steps;         ///< rows of the input that it reads
  double dropout = 0;      ///< of the input
  std::int64_t first = 0;  ///< of the hidden features of a piece
};

/// tokens -> [B, P, E]. Parameters: [V, E].
std::unique_ptr<Layer> make_rnn_embed(const Positions& positions);

/// Sum of the terms [B, P, E], f32 -> [B, P, E] in the type of its edge.
std::unique_ptr<Layer> make_rnn_embed_sum();

/// Input [B, >= S, E] and, unless it is the first, the chunk before, [B, S' + 1, H] -> [B, S + 1,
/// H]. Parameters, as of torch::nn::LSTM: weight_ih [4H, E], weight_hh [4H, H], bias_ih [4H],
/// bias_hh [4H], gates in the order input, forget, cell, output.
///
/// A piece has the rows of each gate that belong to its features: weight_ih [4H', E], weight_hh
/// [4H', H], bias_ih [4H'], bias_hh [4H'] -> [B, 2, H']. It has one step, because every step reads
/// the whole hidden state of the step before.
std::unique_ptr<Layer> make_rnn_lstm(const RnnChunk& chunk);

/// Some rows of its inputs, [B, N, H'] each, side by side -> [B, S, H].
std::unique_ptr<Layer> make_rnn_join(const Positions& rows);

/// A chunk of the decoder, then all chunks of the encoder -> [B, S, H]. Parameters: [H, 2H].
std::unique_ptr<Layer> make_rnn_attention();

/// All chunks, or what attention has made of them (`with_attention`) -> [B, P, H].
std::unique_ptr<Layer> make_rnn_output(double dropout, bool with_attention);

/// [B, P, H], tokens -> sum of the cross entropies; weight: B * P targets. Parameters: [V, H], [V].
std::unique_ptr<Layer> make_rnn_head(const Positions& targets);

/// The last chunk [B, S + 1, H], tokens -> sum of the cross entropies; weight: B. Parameters: [L,
/// H], [L].
std::unique_ptr<Layer> make_rnn_class_head(double dropout);

}  // namespace spillway
