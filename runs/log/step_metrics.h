#pragma once

#include <cstdint>
#include <optional>

#include "spillway/metric.h"

namespace spillway {

/// The metrics of a committed step. An evaluation belongs to the step whose weights it used.
struct StepMetrics {
  std::int64_t step = 0;
  std::optional<double> loss, learning_rate, gradient_norm, tokens_per_s, time_s, eval_loss;
  Metrics metrics;  ///< of the evaluation, by name
};

}  // namespace spillway
