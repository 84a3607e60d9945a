#pragma once

#include "tests/support/models/exported_net.h"

namespace spillway::testing {

inline constexpr std::int64_t kTokens = 12, kPositions = 4, kChannels = 8, kHeads = 2;
inline constexpr std::int64_t kInner = 16;

/// What a test changes in a transformer.
struct TransformerOptions {
  double attention_dropout = 0;  ///< inside what pieces compute
  double residual_dropout = 0;   ///< behind it
  double input_dropout = 0;      ///< before it
  bool writes = false;           ///< its MLP changes a value in place
  bool ties = false;             ///< a layer that is no embedding reads the embedding, too
};

/// A language model with one block: an attention with a factor for each head, an MLP, and a head
/// that is tied to the embedding. One token does not count as a target.
ExportedNet exported_transformer(const TransformerOptions& options = {});

/// A virtual node of samples: [2, kPositions + 1].
at::Tensor transformer_rows();

/// Samples for it.
std::shared_ptr<const DataSplit> transformer_data();

}  // namespace spillway::testing
