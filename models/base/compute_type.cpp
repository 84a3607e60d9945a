#include "models/base/compute_type.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/layer_norm.h>
#include <fmt/format.h>

#include <algorithm>

#include "spillway/error.h"

namespace spillway {
namespace {

bool is_made_for_bf16(const ModelSpec& model) {
  const auto is_bf16 = [](const auto& of) { return of.tensor.dtype == DType::bf16; };
  return std::ranges::any_of(model.params, is_bf16) || std::ranges::any_of(model.edges, is_bf16);
}

bool changes_type(const ParamSpec& param) {
  return param.tensor.dtype == DType::f32 && !param.is_statistic() && !param.keeps_type;
}

[[noreturn]] void reject(const ModelSpec& model, const char* is, const char* made_for) {
  throw ConfigError("train.dtype", 0,
                    fmt::format("is {}, but model {} computes with {}; write {}, or export the "
                                "model for the other type",
                                is, model.family, made_for, made_for));
}

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::i64:
      return at::kLong;
  }
  return at::kFloat;
}

void compute_with(ModelSpec& model, DType dtype) {
  const bool is_bf16 = dtype == DType::bf16;
  if (is_made_for_bf16(model)) {
    if (!is_bf16) reject(model, "fp32", "bf16");
    return;
  }
  if (!is_bf16) return;
  if (std::ranges::none_of(model.params, changes_type)) reject(model, "bf16", "fp32");
  for (ParamSpec& param : model.params) {
    if (changes_type(param)) param.tensor.dtype = dtype;
  }
  for (EdgeSpec& edge : model.edges) {
    const bool is_f32 = edge.tensor.dtype == DType::f32 && !edge.keeps_type;
    if (edge.producer >= 0 && is_f32) edge.tensor.dtype = dtype;
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
