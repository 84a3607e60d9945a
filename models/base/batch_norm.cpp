#include "models/base/batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

namespace spillway {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor as_float(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::kFloat) : tensor;
}

/// [B, C, H, W] f32, [C] and [C] -> multiplied by the factor of its channel, with its bias added.
at::Tensor scaled(const at::Tensor& x, const at::Tensor& factor, const at::Tensor& bias) {
  return at::batch_norm(x, factor, bias, at::zeros_like(bias), at::ones_like(bias),
                        /*training=*/false, /*momentum=*/0, /*eps=*/0, /*cudnn_enabled=*/false);
}

/// Faster than LibTorch's var_mean.
class Moments : public torch::autograd::Function<Moments> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const auto [mean, variance] =
        at::batch_norm_update_stats(x.to(at::kFloat), {}, {}, /*momentum=*/0);
    context->save_for_backward({x, mean});
    return at::stack({mean, variance});
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor x = saved[0].to(at::kFloat), &mean = saved[1];
    const auto count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
    const at::Tensor of_mean = gradients[0][0] / count, factor = gradients[0][1] * (2 / count);
    return {scaled(x, factor, of_mean - factor * mean).to(saved[0].scalar_type())};
  }
};

}  // namespace

void add_batch_norm(ModelBuilder& model, std::vector<int>& params, const std::string& name,
                    const Dim& channel, const BatchNormConfig& config, int piece, int pieces) {
  using Kind = StatisticSpec::Kind;
  const TensorSpec tensor{DType::f32, {channel}};
  const auto add = [&](const char* part, TensorSpec spec, InitSpec::Kind init, Kind statistic) {
    params.push_back(model.add_piece({.name = name + part,
                                      .tensor = std::move(spec),
                                      .init = {init},
                                      .trainable = statistic == Kind::none,
                                      .decay = false,
                                      .statistic = {statistic, config.momentum}},
                                     piece, statistic == Kind::count ? 1 : pieces));
  };
  add(".weight", tensor, InitSpec::Kind::ones, Kind::none);
  add(".bias", tensor, InitSpec::Kind::zeros, Kind::none);
  add(".running_mean", tensor, InitSpec::Kind::zeros, Kind::average);
  add(".running_var", tensor, InitSpec::Kind::ones, Kind::average);
  if (piece > 0) return;
  add(".num_batches_tracked", {DType::i64, {}}, InitSpec::Kind::zeros, Kind::count);
}

at::Tensor batch_norm(const at::Tensor& x, std::span<const at::Tensor> params, double eps,
                      const LayerContext& context, std::vector<at::Tensor>& observations) {
  const at::Tensor in = x.to(at::kFloat);
  const at::Tensor weight = as_float(params[0]), bias = as_float(params[1]);
  if (!context.training) {
    return at::batch_norm(in, weight, bias, params[2], params[3], /*training=*/false,
                          /*momentum=*/0, eps, /*cudnn_enabled=*/false)
        .to(x.scalar_type());
  }
  // With a momentum of 1 the running statistics become those of this virtual node.
  const at::Tensor mean = at::zeros_like(params[2]), variance = at::zeros_like(params[3]);
  observations.insert(observations.end(), {mean, variance});
  return at::batch_norm(in, weight, bias, mean, variance, /*training=*/true,
                        /*momentum=*/1, eps, /*cudnn_enabled=*/false)
      .to(x.scalar_type());
}

at::Tensor moments(const at::Tensor& x) { return Moments::apply(x); }

at::Tensor batch_norm_factors(std::span<const at::Tensor> moments, std::span<const double> shares,
                              std::int64_t count, std::span<const at::Tensor> params, double eps,
                              const LayerContext& context, std::vector<at::Tensor>& observations) {
  at::Tensor mean = params[2], variance = params[3];
  if (context.training) {
    mean = at::zeros_like(mean);
    for (std::size_t i = 0; i < moments.size(); ++i) mean = mean + shares[i] * moments[i][0];
    variance = at::zeros_like(variance);
    for (std::size_t i = 0; i < moments.size(); ++i) {
      variance = variance + shares[i] * (moments[i][1] + (moments[i][0] - mean).square());
    }
    const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
    observations.insert(observations.end(), {mean.detach(), unbiased * variance.detach()});
  }
  const at::Tensor factor = as_float(params[0]) * at::rsqrt(variance + eps);
  return at::stack({factor, as_float(params[1]) - mean * factor});
}

at::Tensor normalised(const at::Tensor& x, const at::Tensor& factors) {
  return scaled(x.to(at::kFloat), factors[0], factors[1]).to(x.scalar_type());
}

}  // namespace spillway
