#pragma once

#include "spillway/model.h"
#include "spillway/rnn_config.h"

namespace spillway {

/// A recurrent network of LSTMs, as RnnConfig describes it. Batch edge "tokens" is [sample,
/// position] i64. Layers of a language model: embed; for each LSTM layer, for each chunk of steps,
/// lstm.LAYER.CHUNK; output, which puts the chunks together; head (logits, cross entropy summed
/// over tokens). So any stage in time and depth can be on another device. All chunks of an LSTM
/// layer have the same parameters. A chunk makes [sample, steps + 1, hidden]: its last row is the
/// cell state, the row before it the hidden state, and the next chunk begins with both; the first
/// one with zeros.
///
/// A classifier has no output layer; its head reads the last hidden state. A translation has the
/// embeddings and LSTM layers of encoder and decoder (encoder.embed, encoder.0.0, ..., decoder.0.0,
/// ...); an LSTM layer of the decoder begins with the last state of the encoder's. Behind each last
/// chunk of the decoder, attention.CHUNK makes tanh(W [context; h]), where the context is a mean of
/// the encoder's last hidden states, weighted by the softmax of their products with h.
///
/// Parameters have PyTorch's names: those of lstm are the ones of a torch.nn.LSTM. LSTMs start
/// normal with PyTorch's variance, 1 / (3 * hidden_size), the head and the attention with 1 / (3 *
/// inputs), embeddings with standard deviation 0.1, biases as zeros. Weight decay applies to
/// matrices. Dropout applies to the input of each LSTM layer and of the head, not to states; its
/// masks depend on chunk_steps.
///
/// `pieces.vocabulary` divides embeddings and head by tokens (models/text/vocabulary.h).
/// `pieces.hidden` divides chunks of one step: the piece lstm.LAYER.STEP/PIECE computes the four
/// gates of its hidden features, and makes [sample, 2, features]. Layers without parameters put
/// pieces together, lstm.LAYER.STEP for the layer above and lstm.LAYER.STEP.state for the next
/// step, and hand embed.STEP to the first layer.
///
/// Throws ConfigError like RnnConfig::validate() and freeze(), and (`train.batch_size`) if a
/// virtual node has no sample or too many.
///
/// Source: Jia et al., "Beyond data and model parallelism for deep neural networks", 2019, for the
/// networks; Luong et al., "Effective approaches to attention-based neural machine translation",
/// 2015, for the attention (global, dot).
std::unique_ptr<Model> make_rnn(const RnnConfig& config, std::int64_t vn_size);

}  // namespace spillway
