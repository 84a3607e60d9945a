#include "spillway/gpt_config.h"

#include <fmt/format.h>

#include "core/base/divisor.h"
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
    check.require(
        hidden_size % num_attention_heads == 0, "num_attention_heads",
        fmt::format("is {}, must be a divisor of model.hidden_size, which is {}; write {}",
                    num_attention_heads, hidden_size,
                    largest_divisor(hidden_size, num_attention_heads)));
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
  if (fields.holds("num_attention_heads")) {
    require_pieces(check, pieces.attention, num_attention_heads, "attention", "heads");
  }
  if (has_hidden && fields.holds("intermediate_size")) {
    require_pieces(check, pieces.mlp, mlp_size(), "mlp", "inner features");
  }
  if (fields.holds("vocab_size")) {
    require_pieces(check, pieces.vocabulary, vocab_size, "vocabulary", "tokens");
  }
  check.finish();
}

GptPieces GptConfig::num_pieces() const {
  using detail::pieces_for;
  GptPieces number = pieces;
  if (pieces.attention == 0) {
    const std::int64_t head_size = hidden_size / num_attention_heads;
    number.attention = pieces_for(num_attention_heads, (127 + head_size) / head_size);
  }
  if (pieces.mlp == 0) number.mlp = pieces_for(mlp_size(), 512);
  if (pieces.vocabulary == 0) number.vocabulary = pieces_for(vocab_size, 2048);
  return number;
}

}  // namespace spillway
