#include "models/base/model_checks.h"

#include <array>
#include <charconv>
#include <cmath>

#include "spillway/error.h"

namespace spillway::detail {
namespace {

/// As few digits as say which number it is.
template <typename T>
std::string text(T value) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

}  // namespace

bool require_range(ConfigCheck& check, std::int64_t value, std::int64_t low, std::int64_t high,
                   const std::string& field) {
  return check.require(value >= low && value <= high, field,
                       "is " + text(value) + ", must be from " + text(low) + " to " + text(high));
}

bool require_positive(ConfigCheck& check, double value, const std::string& field) {
  return check.require(std::isfinite(value) && value > 0, field,
                       "is " + text(value) + ", must be above 0");
}

bool require_dropout(ConfigCheck& check, double value) {
  const bool rounds_to_1 = value < 1 && static_cast<float>(value) >= 1;
  return check.require(
      !rounds_to_1, "dropout",
      "is " + text(value) + ", which is 1 in single precision; write a smaller number");
}

bool require_tensor(ConfigCheck& check, std::int64_t rows, std::int64_t columns,
                    const std::string& field) {
  return check.require(rows * columns <= kMaxTensorElements, field,
                       "is too large: a tensor of " + text(rows) + " x " + text(columns) +
                           " has more than " + text(kMaxTensorElements) +
                           " elements; choose a smaller one or lower model.hidden_size");
}

void check_vn_size(std::int64_t vn_size, std::int64_t elements_per_sample) {
  const auto reject = [&](const std::string& problem) {
    throw ConfigError("train.batch_size", 0,
                      "makes virtual nodes of " + text(vn_size) + " samples, " + problem);
  };
  const std::int64_t most = kMaxTensorElements / elements_per_sample;
  if (vn_size < 1) reject("must be at least 1");
  if (vn_size > most) {
    reject("a model of this size takes at most " + text(most) +
           "; lower it or raise train.virtual_nodes");
  }
}

}  // namespace spillway::detail
