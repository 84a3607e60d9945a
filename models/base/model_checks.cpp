#include "models/base/model_checks.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "spillway/error.h"

namespace spillway::detail {
namespace {

/// The shortest text that identifies the number.
std::string text(double value) {
  std::array<char, 32> digits{};
  return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

}  // namespace

bool require_range(ConfigCheck& check, std::int64_t value, std::int64_t low, std::int64_t high,
                   const std::string& field) {
  return check.require(value >= low && value <= high, field,
                       fmt::format("is {}, must be from {} to {}", value, low, high));
}

bool require_positive(ConfigCheck& check, double value, const std::string& field) {
  return check.require(std::isfinite(value) && value > 0, field,
                       fmt::format("is {}, must be above 0", text(value)));
}

bool require_dropout(ConfigCheck& check, double value, const std::string& field) {
  const bool rounds_to_1 = value < 1 && static_cast<float>(value) >= 1;
  return check.require(
      !rounds_to_1, field,
      fmt::format("is {}, which is 1 in single precision; write a smaller number", text(value)));
}

bool require_tensor(ConfigCheck& check, std::int64_t rows, std::int64_t columns,
                    const std::string& field) {
  return check.require(rows * columns <= kMaxTensorElements, field,
                       fmt::format("is too large: a tensor of {} x {} has more than {} elements; "
                                   "choose a smaller one or lower model.hidden_size",
                                   rows, columns, kMaxTensorElements));
}

void check_vn_size(std::int64_t vn_size, std::int64_t elements_per_sample) {
  const auto reject = [&](const std::string& problem) {
    throw ConfigError("train.batch_size", 0,
                      fmt::format("makes virtual nodes of {} samples, {}", vn_size, problem));
  };
  const std::int64_t most = kMaxTensorElements / elements_per_sample;
  if (vn_size < 1) reject("must be at least 1");
  if (vn_size > most) {
    reject(fmt::format(
        "a model of this size takes at most {}; lower it or raise train.virtual_nodes", most));
  }
}

bool require_pieces(ConfigCheck& check, std::int64_t pieces, std::int64_t size,
                    const std::string& field, const char* units) {
  return check.require(
      pieces <= size, "pieces." + field,
      fmt::format("is {}, but a layer has only {} {}; use at most {}", pieces, size, units, size));
}

std::int64_t pieces_for(std::int64_t size, std::int64_t least) {
  std::int64_t number = 1;
  while (number < 8 && size / (2 * number) >= least) number *= 2;
  return number;
}

}  // namespace spillway::detail
