#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "spillway/trial_config.h"

namespace spillway::testing {

/// Samples [first, first + size) in the order of the trial, or of its evaluation.
at::Tensor rows_of(const TrialConfig& trial, std::int64_t first, std::int64_t size,
                   bool evaluation = false);

}  // namespace spillway::testing
