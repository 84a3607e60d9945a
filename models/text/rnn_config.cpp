#include "spillway/rnn_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/model_checks.h"
#include "models/text/rnn_fields.h"

namespace spillway {
namespace {

constexpr std::int64_t kMostChunks = 1024;

/// Steps of the longest LSTM layer.
std::int64_t num_steps(const RnnConfig& config) {
  const std::int64_t context = config.max_position_embeddings;
  return config.preset == RnnPreset::nmt ? context / 2 : context;
}

std::int64_t num_chunks(const RnnConfig& config) {
  return (num_steps(config) - 1) / config.chunk_steps + 1;
}

void check_steps(const RnnConfig& config, ConfigCheck& check) {
  const std::int64_t context = config.max_position_embeddings;
  const bool is_whole = check.require(
      config.preset != RnnPreset::nmt || context % 2 == 0, "max_position_embeddings",
      fmt::format("is {}, must be even with model.preset: nmt, whose source and target are halves "
                  "of it; write {}",
                  context, context + 1));
  if (!is_whole) return;
  const std::int64_t steps = num_steps(config);
  check.require(num_chunks(config) <= kMostChunks, "chunk_steps",
                fmt::format("is {}, which divides {} steps into {} chunks, more than {}; write at "
                            "least {}",
                            config.chunk_steps, steps, num_chunks(config), kMostChunks,
                            (steps - 1) / kMostChunks + 1));
}

/// Of a configuration with a hidden_size.
std::int64_t most_hidden_pieces(const RnnConfig& config) {
  const std::int64_t steps = std::max<std::int64_t>(1, num_steps(config));
  return std::clamp<std::int64_t>(kMostChunks / steps, 1, config.hidden_size);
}

/// Of a configuration with defaults.
void check_hidden_pieces(const RnnConfig& config, ConfigCheck& check) {
  const std::int64_t pieces = config.pieces.hidden, most = most_hidden_pieces(config);
  if (!detail::require_pieces(check, pieces, config.hidden_size, "hidden", "features")) return;
  const bool are_few = check.require(
      pieces <= most, "pieces.hidden",
      fmt::format("is {}, but {} steps in {} pieces each are more than {} pieces; use at most {}",
                  pieces, num_steps(config), pieces, kMostChunks, most));
  if (!are_few) return;
  check.require(pieces == 1 || config.chunk_steps == 1, "pieces.hidden",
                fmt::format("is {}, but model.chunk_steps is {}; every step reads the whole state "
                            "of the one before: write model.chunk_steps: 1",
                            pieces, config.chunk_steps));
}

/// Of a configuration with defaults.
void check_tie(const RnnConfig& config, ConfigCheck& check) {
  if (!config.tie_word_embeddings) return;
  check.require(config.preset != RnnPreset::rnntc, "tie_word_embeddings",
                "is true, but model.preset: rnntc has a head of classes; write false");
  check.require(config.embedding_size == config.hidden_size, "tie_word_embeddings",
                fmt::format("is true, but model.embedding_size is {} and model.hidden_size is {}; "
                            "write false, or embedding_size: {}",
                            config.embedding_size, config.hidden_size, config.hidden_size));
}

}  // namespace

void RnnConfig::validate() const {
  using namespace detail;
  ConfigCheck check("model.");
  FieldCheck fields(check);
  visit_rnn(*this, fields);
  require_dropout(check, dropout);
  if (fields.holds("vocab_size")) {
    require_pieces(check, pieces.vocabulary, vocab_size, "vocabulary", "tokens");
  }
  check.finish();
  const RnnConfig full = with_defaults();
  const std::int64_t width = std::max(full.embedding_size, full.hidden_size);
  const char* widest = full.embedding_size > full.hidden_size ? "embedding_size" : "hidden_size";
  if (require_tensor(check, 4 * full.hidden_size, width, widest)) {
    require_tensor(check, vocab_size, width, "vocab_size");
    require_tensor(check, max_position_embeddings, width, "max_position_embeddings");
    if (preset == RnnPreset::rnntc) {
      require_tensor(check, num_classes, full.hidden_size, "num_classes");
    }
  }
  check_steps(*this, check);
  check_hidden_pieces(full, check);
  check_tie(full, check);
  check.finish();
}

RnnConfig RnnConfig::with_defaults() const {
  struct Sizes {
    std::int64_t hidden, layers;
  };
  constexpr std::array<Sizes, kNames<RnnPreset>.size()> kSizes{
      {{128, 2}, {1024, 4}, {2048, 2}, {1024, 2}}};
  const Sizes& sizes = kSizes[static_cast<std::size_t>(preset)];
  RnnConfig full = *this;
  if (hidden_size == 0) full.hidden_size = sizes.hidden;
  if (embedding_size == 0) full.embedding_size = full.hidden_size;
  if (num_hidden_layers == 0) full.num_hidden_layers = sizes.layers;
  if (pieces.vocabulary == 0) full.pieces.vocabulary = detail::pieces_for(vocab_size, 2048);
  if (pieces.hidden == 0) {
    full.pieces.hidden = chunk_steps > 1 ? 1
                                         : std::min(detail::pieces_for(full.hidden_size, 512),
                                                    most_hidden_pieces(full));
  }
  return full;
}

std::int64_t RnnConfig::max_hidden_pieces() const { return most_hidden_pieces(with_defaults()); }

std::int64_t RnnConfig::num_predictions() const {
  return preset == RnnPreset::rnntc ? 0 : num_steps(*this);
}

std::int64_t RnnConfig::num_layers() const {
  const std::int64_t chunks = num_chunks(*this);
  const std::int64_t stack = 1 + with_defaults().num_hidden_layers * chunks;  // with its embedding
  if (preset == RnnPreset::rnntc) return stack + 1;
  return preset == RnnPreset::nmt ? 2 * stack + chunks + 2 : stack + 2;
}

}  // namespace spillway
