#include "trainer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace spillway {

double learning_rate_at(const TrainConfig& config, std::int64_t step) {
  const auto warmup = static_cast<std::int64_t>(
      std::ceil(config.warmup_ratio * static_cast<double>(config.max_steps)));
  if (step < warmup) {
    return config.learning_rate * static_cast<double>(step) / static_cast<double>(warmup);
  }
  const auto span = static_cast<double>(std::max<std::int64_t>(1, config.max_steps - warmup));
  const double progress = static_cast<double>(step - warmup) / span;
  return config.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

kernels::AdamW adamw_at(const TrainConfig& config, std::int64_t step, bool decay,
                        double gradient_scale) {
  const auto t = static_cast<double>(step + 1);
  return {
      .learning_rate = static_cast<float>(learning_rate_at(config, step)),
      .beta1 = static_cast<float>(config.adam_beta1),
      .beta2 = static_cast<float>(config.adam_beta2),
      .epsilon = static_cast<float>(config.adam_epsilon),
      .weight_decay = static_cast<float>(decay ? config.weight_decay : 0),
      .bias_correction1 = static_cast<float>(1 - std::pow(config.adam_beta1, t)),
      .bias_correction2_sqrt = static_cast<float>(std::sqrt(1 - std::pow(config.adam_beta2, t))),
      .gradient_scale = static_cast<float>(gradient_scale)};
}

double clip_coefficient(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace spillway
