#include "spillway/gpt_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "models/base/model_checks.h"
#include "models/families/family_fields.h"

namespace spillway {

void GptConfig::validate() const {
  using namespace detail;
  ConfigCheck check("model.");
  FieldCheck fields(check);
  visit_gpt(*this, fields);
  const bool has_hidden = fields.holds("hidden_size");
  if (fields.holds("num_attention_heads") && has_hidden) {
    check.require(hidden_size % num_attention_heads == 0, "num_attention_heads",
                  fmt::format("is {}, which does not divide model.hidden_size {}; heads are equal "
                              "slices of the channels",
                              num_attention_heads, hidden_size));
  }
  require_dropout(check, dropout);
  if (has_hidden && require_tensor(check, 3 * hidden_size, hidden_size, "hidden_size")) {
    const char* mlp = intermediate_size ? "intermediate_size" : "hidden_size";
    if (fields.holds("intermediate_size")) require_tensor(check, mlp_size(), hidden_size, mlp);
    if (fields.holds("vocab_size")) require_tensor(check, vocab_size, hidden_size, "vocab_size");
    if (fields.holds("max_position_embeddings")) {
      require_tensor(check, max_position_embeddings, hidden_size, "max_position_embeddings");
    }
  }
  const auto require_pieces = [&](const char* name, std::int64_t pieces, std::int64_t most,
                                  const char* of) {
    check.require(pieces <= most, std::string("pieces.") + name,
                  fmt::format("is {}, but the model has only {} {}; use at most so many pieces",
                              pieces, most, of));
  };
  require_pieces("attention", pieces.attention, num_attention_heads, "heads in a layer");
  require_pieces("mlp", pieces.mlp, mlp_size(), "inner features in an MLP");
  require_pieces("vocabulary", pieces.vocabulary, vocab_size, "tokens");
  check.finish();
}

/// The largest power of two up to 8 that leaves each piece at least `least` of `size`.
static std::int64_t pieces_for(std::int64_t size, std::int64_t least) {
  std::int64_t pieces = 1;
  while (pieces < 8 && size / (2 * pieces) >= least) pieces *= 2;
  return pieces;
}

GptPieces GptConfig::num_pieces() const {
  GptPieces number = pieces;
  if (pieces.attention == 0) {
    const std::int64_t head_size = hidden_size / num_attention_heads;
    number.attention =
        pieces_for(num_attention_heads, std::max<std::int64_t>(1, (127 + head_size) / head_size));
  }
  if (pieces.mlp == 0) number.mlp = pieces_for(mlp_size(), 512);
  if (pieces.vocabulary == 0) number.vocabulary = pieces_for(vocab_size, 2048);
  return number;
}

}  // namespace spillway
