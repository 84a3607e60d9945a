#include "apps/plan/with_pieces.h"

#include <fmt/format.h>

#include <algorithm>

namespace spillway {

std::vector<std::string> with_pieces(const RunConfig& config, std::int64_t pieces) {
  const auto divided = [&](const char* layer, std::int64_t size) {
    return fmt::format("model.pieces.{}={}", layer, std::min(size, pieces));
  };
  switch (config.family) {
    case ModelFamily::gpt:
      return {divided("attention", config.gpt.num_attention_heads),
              divided("mlp", config.gpt.mlp_size()), divided("vocabulary", config.gpt.vocab_size)};
    case ModelFamily::mlp:
      return {divided("hidden", config.mlp.hidden_size)};
    case ModelFamily::cnn:
      return {divided("channels", pieces)};
    case ModelFamily::rnn:
      return {divided("vocabulary", config.rnn.vocab_size)};
    default:
      return {};
  }
}

}  // namespace spillway
