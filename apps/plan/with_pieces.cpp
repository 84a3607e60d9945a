#include "apps/plan/with_pieces.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway {

/// Convolutions by channels, or by rows.
static std::vector<std::vector<std::string>> ways_of_cnn(const CnnPieces& now,
                                                         const std::string& channels,
                                                         std::int64_t pieces) {
  std::vector<std::vector<std::string>> ways{{channels}};
  if (now.height > 1) ways[0].push_back("model.pieces.height=1");
  if (pieces > 1) ways.push_back({channels, fmt::format("model.pieces.height={}", pieces)});
  return ways;
}

/// The vocabulary alone, or the steps of LSTM layers too.
static std::vector<std::vector<std::string>> ways_of_rnn(const RnnConfig& now,
                                                         const std::string& vocabulary,
                                                         std::int64_t pieces) {
  std::vector<std::vector<std::string>> ways{{vocabulary}};
  if (now.pieces.hidden != 1) ways[0].push_back("model.pieces.hidden=1");
  const std::int64_t hidden = std::min(now.max_hidden_pieces(), pieces);
  if (hidden > 1) {
    ways.push_back(
        {vocabulary, fmt::format("model.pieces.hidden={}", hidden), "model.chunk_steps=1"});
  }
  return ways;
}

/// What pieces of transformers share, or all linear layers.
static std::vector<std::vector<std::string>> ways_of_torch(std::int64_t pieces) {
  const auto all = [&](std::int64_t blocks, std::int64_t linear) {
    return std::vector<std::string>{fmt::format("model.pieces.attention={}", blocks),
                                    fmt::format("model.pieces.mlp={}", blocks),
                                    fmt::format("model.pieces.vocabulary={}", blocks),
                                    fmt::format("model.pieces.linear={}", linear)};
  };
  std::vector<std::vector<std::string>> ways{all(pieces, 1)};
  if (pieces > 1) ways.push_back(all(1, pieces));
  return ways;
}

std::vector<std::vector<std::string>> with_pieces(const RunConfig& config, std::int64_t pieces) {
  const auto divided = [&](const char* layer, std::int64_t size) {
    return fmt::format("model.pieces.{}={}", layer, std::min(size, pieces));
  };
  switch (config.family) {
    case ModelFamily::gpt:
      return {{divided("attention", config.gpt.num_attention_heads),
               divided("mlp", config.gpt.mlp_size()),
               divided("vocabulary", config.gpt.vocab_size)}};
    case ModelFamily::mlp:
      return {{divided("hidden", config.mlp.hidden_size)}};
    case ModelFamily::cnn:
      return ways_of_cnn(config.cnn.pieces, divided("channels", pieces), pieces);
    case ModelFamily::rnn:
      return ways_of_rnn(config.rnn, divided("vocabulary", config.rnn.vocab_size), pieces);
    case ModelFamily::torch:
      return ways_of_torch(pieces);
    default:
      return {};
  }
}

}  // namespace spillway
