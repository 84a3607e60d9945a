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
      return {{divided("vocabulary", config.rnn.vocab_size)}};
    default:
      return {};
  }
}

}  // namespace spillway
