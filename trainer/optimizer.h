#pragma once

#include <cstdint>

#include "core/kernels.h"
#include "trainer/session.h"

namespace spillway {

/// Learning rate of the update that commits step `step` (from 0).
/// "cosine": linear warm-up from 0 over ceil(warmup_ratio * max_steps) steps, then half a cosine to
/// 0. Source: Hugging Face, get_cosine_schedule_with_warmup.
double learning_rate_at(const TrainConfig& config, std::int64_t step);

/// Hyper-parameters of one AdamW pass: bias corrections for update number step + 1, gradients
/// scaled by `gradient_scale`.
kernels::AdamW adamw_at(const TrainConfig& config, std::int64_t step, bool decay,
                        double gradient_scale);

/// min(1, max_norm / (norm + 1e-6)); 1 where max_norm is 0.
/// Source: PyTorch, clip_grad_norm_.
double clip_coefficient(double norm, double max_norm);

}  // namespace spillway
