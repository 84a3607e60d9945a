#include "trainer/compute/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <optional>
#include <vector>

#include "spillway/error.h"
#include "trainer/config/parameter_groups.h"

namespace spillway {
namespace {

kernels::AdamW adamw_at(const TrainConfig& config, std::int64_t step) {
  const auto t = static_cast<double>(step + 1);
  return {
      .beta1 = static_cast<float>(config.adam_beta1),
      .beta2 = static_cast<float>(config.adam_beta2),
      .epsilon = static_cast<float>(config.adam_epsilon),
      .bias_correction1 = static_cast<float>(1 - std::pow(config.adam_beta1, t)),
      .bias_correction2_sqrt = static_cast<float>(std::sqrt(1 - std::pow(config.adam_beta2, t)))};
}

template <typename T>
void run(const kernels::AdamW& adamw, const UpdatedParam& at, const T* gradient, std::size_t n) {
  kernels::adamw(at.weights, at.moments[0], at.moments[1], gradient, n, adamw);
}

template <typename T>
void run(const kernels::Sgd& sgd, const UpdatedParam& at, const T* gradient, std::size_t n) {
  kernels::sgd(at.weights, at.moments[0], gradient, n, sgd);
}

/// After the warm-up, of a schedule that does not span all steps.
double plateau_rate(const TrainConfig& config, double rate, std::int64_t step,
                    std::int64_t length) {
  if (config.lr_scheduler_type == LrSchedulerType::constant) return rate;
  const double decay = std::ceil(config.decay_ratio * static_cast<double>(length));
  const auto left = static_cast<double>(length - step);
  return left < decay ? rate * left / decay : rate;
}

/// After `step` of the `length` steps of a schedule with this maximum.
double rate_of_schedule(const TrainConfig& config, double rate, std::int64_t step,
                        std::int64_t length) {
  const auto warmup =
      static_cast<std::int64_t>(std::ceil(config.warmup_ratio * static_cast<double>(length)));
  if (step < warmup) return rate * static_cast<double>(step) / static_cast<double>(warmup);
  if (!spans_all_steps(config.lr_scheduler_type)) return plateau_rate(config, rate, step, length);
  const auto span = static_cast<double>(std::max<std::int64_t>(1, length - warmup));
  const double progress = static_cast<double>(step - warmup) / span;
  if (config.lr_scheduler_type == LrSchedulerType::linear) {
    return rate * std::max(0.0, 1 - progress);
  }
  return rate * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

/// The value that the latest change until `step` gave it, or `value`.
double changed(double value, std::optional<double> TrainValues::*which, const TrainConfig& config,
               std::int64_t step) {
  std::int64_t latest = 0;
  for (const TrainChange& change : config.changes) {
    if (change.step > step || change.step < latest || !(change.values.*which)) continue;
    latest = change.step;
    value = *(change.values.*which);
  }
  return value;
}

}  // namespace

ValuesAt values_at(const TrainConfig& config, std::int64_t step) {
  return {changed(config.learning_rate, &TrainValues::learning_rate, config, step),
          changed(config.weight_decay, &TrainValues::weight_decay, config, step),
          changed(config.max_grad_norm, &TrainValues::max_grad_norm, config, step)};
}

double learning_rate_at(const TrainConfig& config, std::int64_t step) {
  const double rate = values_at(config, step).learning_rate;
  if (config.lr_function.factor) return rate * config.lr_function.factor(step);
  const std::vector<std::int64_t>& ends = config.extended_from;
  const auto end = std::ranges::upper_bound(ends, step);  // of the part that has this step
  const std::int64_t length = end == ends.end() ? config.max_steps : *end;
  if (end == ends.begin()) return rate_of_schedule(config, rate, step, length);
  const std::int64_t begin = *std::prev(end);
  if (!spans_all_steps(config.lr_scheduler_type)) return plateau_rate(config, rate, step, length);
  if (config.lr_scheduler_extend == LrExtension::restart) {
    return rate_of_schedule(config, rate, step - begin, length - begin);
  }
  return rate_of_schedule(config, rate, step, length);
}

void require_rate(const TrainConfig& config, std::int64_t step) {
  if (!config.lr_function.factor) return;
  const double factor = config.lr_function.factor(step);
  if (std::isfinite(factor) && factor >= 0) return;
  throw Error(
      fmt::format("train.lr_function '{}' gives {} for step {}, must be finite and at least 0",
                  config.lr_function.name, factor, step));
}

int num_moments(const TrainConfig& config) {
  return config.optimizer == OptimizerKind::sgd ? 1 : 2;
}

UpdateRule update_rule(const TrainConfig& config, std::int64_t step, const ParamSpec& param,
                       double gradient_scale) {
  const ParameterGroup* const group = group_of(config.parameter_groups, param.tensor_name());
  const double rate = learning_rate_at(config, step) * (group ? group->learning_rate_scale : 1);
  double decay = param.decay ? values_at(config, step).weight_decay : 0;
  if (group && group->weight_decay) decay = *group->weight_decay;
  UpdateRule rule = adamw_at(config, step);
  if (config.optimizer == OptimizerKind::sgd) {
    rule = kernels::Sgd{.momentum = static_cast<float>(config.momentum)};
  }
  std::visit(
      [&](auto& hyper) {
        hyper.learning_rate = static_cast<float>(rate);
        hyper.weight_decay = static_cast<float>(decay);
        hyper.gradient_scale = static_cast<float>(gradient_scale);
      },
      rule);
  return rule;
}

void apply_update(const UpdatedParam& param, std::size_t begin, std::size_t end,
                  const UpdateRule& rule) {
  UpdatedParam at{.weights = param.weights + begin, .moments = param.moments};
  for (float*& moment : at.moments) {
    if (moment) moment += begin;
  }
  std::visit([&](const auto& hyper,
                 const auto* gradient) { run(hyper, at, gradient + begin, end - begin); },
             rule, param.gradient);
}

double clip_coefficient(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace spillway
