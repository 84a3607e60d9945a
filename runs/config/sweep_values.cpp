#include "runs/config/sweep_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/device/kernels.h"
#include "runs/text/format.h"
#include "spillway/philox.h"

namespace spillway {
namespace {

using Shape = Distribution::Shape;

double rounded(double value, int digits) {
  std::array<char, 40> text{};
  char* end = text.data() + text.size();
  end = std::to_chars(text.data(), end, value, std::chars_format::general, digits).ptr;
  std::from_chars(text.data(), end, value);
  return value;
}

/// Multiple number `n` of q: 3 * 0.1 is 0.3.
double multiple(const SweepParameter& parameter, double n) {
  constexpr int kExactDigits = 15;
  return rounded(n * parameter.q, kExactDigits);
}

YamlNode node_of(const SweepParameter& parameter, double value) {
  return {.kind = YamlNode::Kind::scalar, .line = parameter.line, .text = number_text(value)};
}

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

/// Random numbers of one parameter in one trial.
class Draw {
 public:
  Draw(const SweepParameter& parameter, std::uint64_t seed, std::uint32_t trial) {
    const std::uint64_t hash = fnv1a(parameter.key);
    key_ = {.seed = seed,
            .step = static_cast<std::uint32_t>(hash >> 32),
            .vn = trial,
            .stream = static_cast<std::uint32_t>(hash)};
  }

  /// From 0, below 1.
  double uniform() const {
    const auto words = philox({0, key_.vn, key_.stream, key_.step}, key_.seed);
    const std::uint64_t bits = std::uint64_t{words[0]} << 32 | words[1];
    return static_cast<double>(bits >> 11) * 0x1p-53;
  }

  double normal() const {
    float value = 0;
    kernels::fill_normal(&value, 1, 1.0, key_);
    return value;
  }

 private:
  RandomKey key_;
};

std::size_t random_index(const SweepParameter& parameter, double u) {
  const auto& probabilities = parameter.probabilities;
  const std::size_t n = parameter.values.size();
  if (probabilities.empty()) return static_cast<std::size_t>(u * static_cast<double>(n));
  std::size_t last = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (probabilities[i] == 0) continue;
    last = i;
    if (u < probabilities[i]) break;
    u -= probabilities[i];
  }
  return last;
}

/// Before quantization.
double random_number(const SweepParameter& parameter, const Draw& draw) {
  const auto& [min, max] = std::pair(parameter.min, parameter.max);
  const auto mixed = [](double a, double b, double u) { return a * (1 - u) + b * u; };
  switch (parameter.distribution.shape) {
    case Shape::int_uniform:
      return std::min(min + std::floor(draw.uniform() * (max - min + 1)), max);
    case Shape::uniform:
      return mixed(min, max, draw.uniform());
    case Shape::log_uniform:
      return std::exp(mixed(std::log(min), std::log(max), draw.uniform()));
    case Shape::inv_log_uniform:
      return std::exp(mixed(std::log(max), std::log(min), draw.uniform()));
    case Shape::normal:
      return parameter.mu + parameter.sigma * draw.normal();
    case Shape::log_normal:
      return std::exp(parameter.mu + parameter.sigma * draw.normal());
    case Shape::constant:
    case Shape::categorical:
      break;
  }
  return 0;
}

}  // namespace

std::string number_text(double value) {
  constexpr double kWhole = 0x1p53;
  if (value == std::trunc(value) && std::abs(value) <= kWhole)
    return std::to_string(static_cast<std::int64_t>(value));
  return format_number(value);
}

Multiples multiples(const SweepParameter& parameter) {
  // 0.3 / 0.1 is a little less than 3.
  const auto slack = [](double n) { return 1e-9 * std::max(1.0, std::abs(n)); };
  const double low = parameter.min / parameter.q, high = parameter.max / parameter.q;
  return {std::ceil(low - slack(low)), std::floor(high + slack(high))};
}

std::size_t grid_size(const SweepParameter& parameter) {
  const auto count = [](double first, double last) {
    return static_cast<std::size_t>(std::min(last - first + 1, kMaxTrials + 1.0));
  };
  const Distribution& distribution = parameter.distribution;
  if (distribution.shape == Shape::int_uniform) return count(parameter.min, parameter.max);
  if (distribution.shape == Shape::uniform && distribution.quantized) {
    const auto [first, last] = multiples(parameter);
    return count(first, last);
  }
  return parameter.values.size();
}

YamlNode grid_value(const SweepParameter& parameter, std::size_t index) {
  const auto n = static_cast<double>(index);
  switch (parameter.distribution.shape) {
    case Shape::int_uniform:
      return node_of(parameter, parameter.min + n);
    case Shape::uniform:
      return node_of(parameter, multiple(parameter, multiples(parameter).first + n));
    default:
      return parameter.values.at(index);
  }
}

YamlNode random_value(const SweepParameter& parameter, std::uint64_t seed, std::uint32_t trial) {
  constexpr int kDigits = 8;
  const Distribution& distribution = parameter.distribution;
  const Draw draw(parameter, seed, trial);
  if (distribution.shape == Shape::constant) return parameter.values.at(0);
  if (distribution.shape == Shape::categorical)
    return parameter.values.at(random_index(parameter, draw.uniform()));
  double value = random_number(parameter, draw);
  if (distribution.shape == Shape::int_uniform) return node_of(parameter, value);
  if (distribution.quantized) {
    double n = std::round(value / parameter.q);
    if (distribution.is_bounded()) {
      const auto [first, last] = multiples(parameter);
      n = std::clamp(n, first, last);
    }
    return node_of(parameter, multiple(parameter, n));
  }
  value = rounded(value, kDigits);
  if (distribution.is_bounded()) value = std::clamp(value, parameter.min, parameter.max);
  return node_of(parameter, value);
}

}  // namespace spillway
