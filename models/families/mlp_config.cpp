#include "spillway/mlp_config.h"

#include "models/base/model_checks.h"
#include "models/families/family_fields.h"

namespace spillway {

void MlpConfig::validate() const {
  using namespace detail;
  ConfigCheck check("model.");
  FieldCheck fields(check);
  visit_mlp(*this, fields);
  const bool has_input = require_range(check, input_size, 1, kMaxSize, "input_size");
  const bool has_labels = require_range(check, num_labels, 1, kMaxSize, "num_labels");
  require_positive(check, input_scale, "input_scale");
  require_dropout(check, dropout);
  if (fields.holds("hidden_size") &&
      require_tensor(check, hidden_size, hidden_size, "hidden_size")) {
    if (has_input) require_tensor(check, hidden_size, input_size, "input_size");
    if (has_labels) require_tensor(check, num_labels, hidden_size, "num_labels");
  }
  if (fields.holds("hidden_size")) {
    require_pieces(check, pieces.hidden, hidden_size, "hidden", "outputs");
  }
  check.finish();
}

MlpPieces MlpConfig::num_pieces() const {
  return {.hidden = pieces.hidden == 0 ? detail::pieces_for(hidden_size, 512) : pieces.hidden};
}

}  // namespace spillway
