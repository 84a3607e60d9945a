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
static std::vector<std::vector<std::string>> ways_of_torch(const RunConfig& config,
                                                           std::int64_t pieces) {
  if (config.adapter) return {};
  const TorchPieces possible =
      possible_pieces(config.data_root / config.torch.path, {pieces, pieces, pieces, pieces});
  const auto way = [](const TorchPieces& kinds) {
    return std::vector<std::string>{fmt::format("model.pieces.attention={}", kinds.attention),
                                    fmt::format("model.pieces.mlp={}", kinds.mlp),
                                    fmt::format("model.pieces.vocabulary={}", kinds.vocabulary),
                                    fmt::format("model.pieces.linear={}", kinds.linear)};
  };
  TorchPieces blocks = possible;
  blocks.linear = 1;
  std::vector<std::vector<std::string>> ways;
  if (pieces == 1 || blocks != TorchPieces{}) ways.push_back(way(blocks));
  if (possible.linear > 1) ways.push_back(way({.linear = possible.linear}));
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
      return ways_of_torch(config, pieces);
    default:
      return {};
  }
}

}  // namespace spillway
