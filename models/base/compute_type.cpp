#include "models/base/compute_type.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/layer_norm.h>

namespace spillway {

void compute_with(ModelSpec& model, DType dtype) {
  for (ParamSpec& param : model.params) {
    const bool stays = param.is_statistic() || param.keeps_type;
    if (!stays && param.tensor.dtype == DType::f32) param.tensor.dtype = dtype;
  }
  for (EdgeSpec& edge : model.edges) {
    if (edge.producer >= 0 && edge.tensor.dtype == DType::f32) edge.tensor.dtype = dtype;
  }
}

void send_gradients_as(ModelSpec& model, DType dtype) {
  for (ParamSpec& param : model.params) {
    if (param.trainable) param.gradient = dtype;
  }
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps) {
  return at::layer_norm(x.to(at::kFloat), {x.size(-1)}, weight.to(at::kFloat), bias.to(at::kFloat),
                        eps)
      .to(x.scalar_type());
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.to(at::kFloat), targets, {}, at::Reduction::Sum);
}

}  // namespace spillway
