#pragma once

#include "models/base/field_ranges.h"
#include "spillway/rnn_config.h"

namespace spillway {

/// The fields of a recurrent network, see core/base/field.h. `Config` is RnnConfig, constant or
/// not.
template <typename Config, typename Visitor>
void visit_rnn(Config& rnn, Visitor& v) {
  using enum InContract;
  constexpr IntRange kPresetSize{0, kSize.max};
  v.field("preset", rnn.preset, kAny,
          "What the model computes, and its sizes unless they are given. `none`, `rnnlm`: a "
          "language model of 2 layers, 128 or 2048 wide. `rnntc`: a classifier of 4 layers, 1024 "
          "wide; it reads all tokens of a sample but the last, whose number modulo `num_classes` "
          "is the class. `nmt`: a translation by an encoder and a decoder of 2 layers each, 1024 "
          "wide, with attention; the source is the first half of a sample, the target the second.",
          yes);
  v.field("vocab_size", rnn.vocab_size, kSize,
          "Number of tokens; at least 256 with `data.format: bytes`.", yes);
  v.field("max_position_embeddings", rnn.max_position_embeddings, kSize, "Tokens per sample.", yes);
  v.field("embedding_size", rnn.embedding_size, kPresetSize,
          "Width of the embedding; 0: `hidden_size`.", yes);
  v.field("hidden_size", rnn.hidden_size, kPresetSize,
          "Width of an LSTM layer; 0: that of the preset.", yes);
  v.field("num_hidden_layers", rnn.num_hidden_layers, IntRange{0, kNumLayers.max},
          "Number of LSTM layers, of `nmt` in the encoder and in the decoder each; 0: that of the "
          "preset.",
          yes);
  v.field("chunk_steps", rnn.chunk_steps, kSize,
          "Steps of an LSTM layer that are one layer of the model, so that a strategy can place "
          "them. All chunks share the weights, each with a gradient sum of its own.",
          yes);
  v.field("num_classes", rnn.num_classes, kSize, "Number of classes of `rnntc`.", yes);
  v.field("dropout", rnn.dropout, kBelowOne, kDropoutText, yes);
  v.field("tie_word_embeddings", rnn.tie_word_embeddings, kAny,
          "The head has the matrix of the embedding (of `nmt`: of the decoder), which is then as "
          "wide as an LSTM layer.",
          yes);
  if (v.shows(rnn.pieces != RnnPieces{})) {
    v.section("pieces", [&](auto& pieces) {
      pieces.field("vocabulary", rnn.pieces.vocabulary, kPieces,
                   "Number of layers into which each embedding and the head are divided, by "
                   "tokens. `auto`: at least 2,048 each, up to 8.",
                   yes);
      pieces.field("hidden", rnn.pieces.hidden, kPieces,
                   "Number of layers into which each step of an LSTM layer is divided, by hidden "
                   "features. It needs `chunk_steps: 1`, because every step reads the whole state "
                   "of the one before. So host memory holds a gradient sum of the layer's weights "
                   "for each step. `auto`: at least 512 features each, up to 8, and 1 with longer "
                   "chunks.",
                   yes);
    });
  }
  v.field("freeze", rnn.freeze, TextList{.may_be_empty = true}, kFreezeText, yes);
}

}  // namespace spillway
