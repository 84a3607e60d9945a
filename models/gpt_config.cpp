#include "models/gpt_config.h"

#include <cmath>
#include <sstream>
#include <string>

#include "core/error.h"

namespace spillway {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxLayers = std::int64_t{1} << 16;

void require(bool holds, const std::string& field, const std::string& problem) {
  if (!holds) throw ConfigError("model." + field, 0, problem);
}

template <typename T>
std::string text(T value) {
  std::ostringstream stream;
  stream << value;
  return stream.str();
}

void require_range(std::int64_t value, std::int64_t low, std::int64_t high,
                   const std::string& field) {
  require(value >= low && value <= high, field,
          "is " + text(value) + ", must be from " + text(low) + " to " + text(high));
}

void require_positive(double value, const std::string& field) {
  require(std::isfinite(value) && value > 0, field, "is " + text(value) + ", must be above 0");
}

/// Both sizes are known to be in range, so their product does not overflow.
void require_tensor(std::int64_t rows, std::int64_t columns, const std::string& field) {
  require(rows * columns <= kMaxTensorElements, field,
          "is too large: a tensor of " + text(rows) + " x " + text(columns) + " has more than " +
              text(kMaxTensorElements) + " elements; choose a smaller one or lower " +
              "model.hidden_size");
}

}  // namespace

void GptConfig::validate() const {
  require_range(vocab_size, 1, kMaxSize, "vocab_size");
  require_range(num_hidden_layers, 1, kMaxLayers, "num_hidden_layers");
  require_range(hidden_size, 1, kMaxSize, "hidden_size");
  require_range(num_attention_heads, 1, kMaxSize, "num_attention_heads");
  require_range(intermediate_size, 0, kMaxSize, "intermediate_size");
  require_range(max_position_embeddings, 1, kMaxSize, "max_position_embeddings");
  require(hidden_size % num_attention_heads == 0, "num_attention_heads",
          "is " + text(num_attention_heads) + ", which does not divide model.hidden_size " +
              text(hidden_size) + "; heads are equal slices of the channels");
  require(dropout >= 0 && static_cast<float>(dropout) < 1, "dropout",
          "is " + text(dropout) + ", must be at least 0 and below 1");
  require_positive(initializer_range, "initializer_range");
  require_positive(layer_norm_eps, "layer_norm_eps");
  require_tensor(3 * hidden_size, hidden_size, "hidden_size");
  require_tensor(mlp_size(), hidden_size, intermediate_size ? "intermediate_size" : "hidden_size");
  require_tensor(vocab_size, hidden_size, "vocab_size");
  require_tensor(max_position_embeddings, hidden_size, "max_position_embeddings");
}

}  // namespace spillway
