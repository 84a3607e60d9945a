#include "models/base/batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/zeros_like.h>

namespace spillway {
namespace {

at::Tensor as_float(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(at::kFloat) : tensor;
}

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

}  // namespace spillway
