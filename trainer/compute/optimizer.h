#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "core/device/kernels.h"
#include "spillway/spec.h"
#include "spillway/train_config.h"

namespace spillway {

/// The values of the update that commits step `step` (from 0), after the changes until then.
struct ValuesAt {
  double learning_rate = 0;  ///< the maximum
  double weight_decay = 0;
  double max_grad_norm = 0;
};
ValuesAt values_at(const TrainConfig& config, std::int64_t step);

/// Learning rate of the update that commits step `step` (from 0).
/// Linear warm-up from 0 over ceil(warmup_ratio * max_steps) steps, then "cosine": half a cosine to
/// 0; "linear": a line to 0; "constant": no change; "warmup_stable_decay": no change, then a line
/// to 0 over the last ceil(decay_ratio * max_steps) steps. From the first of `extended_from` on see
/// LrExtension.
/// With a function: what it gives, unchecked.
/// Sources: Hugging Face, get_{cosine,linear,constant,wsd}_schedule_with_warmup; a new plateau
/// after a decay: Wen et al. 2024, arXiv:2410.05192.
double learning_rate_at(const TrainConfig& config, std::int64_t step);
/// Throws Error unless the function of the rate, if there is one, gives a factor for this step.
void require_rate(const TrainConfig& config, std::int64_t step);

inline constexpr std::size_t kMaxMoments = 2;
/// Values that the optimizer keeps for each weight: 2 for "adamw", 1 for "sgd".
int num_moments(const TrainConfig& config);

/// What one update of a parameter computes.
using UpdateRule = std::variant<kernels::AdamW, kernels::Sgd>;

/// The rule of update number step + 1 of `param`, with gradients scaled by `gradient_scale`.
UpdateRule update_rule(const TrainConfig& config, std::int64_t step, const ParamSpec& param,
                       double gradient_scale);

/// A parameter with its moments and its gradient.
struct UpdatedParam {
  float* weights = nullptr;
  std::array<float*, kMaxMoments> moments{};
  std::variant<const float*, const BFloat16*> gradient;
};
/// Updates elements [begin, end).
void apply_update(const UpdatedParam& param, std::size_t begin, std::size_t end,
                  const UpdateRule& rule);

/// min(1, max_norm / (norm + 1e-6)); 1 where max_norm is 0.
/// Source: PyTorch, clip_grad_norm_.
double clip_coefficient(double norm, double max_norm);

}  // namespace spillway
