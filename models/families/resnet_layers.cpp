#include "models/families/resnet_layers.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>

#include "models/base/batch_norm.h"
#include "models/base/class_loss.h"
#include "models/base/dropout.h"

namespace spillway {
namespace {

using Tensors = std::span<const at::Tensor>;

class ConvNormLayer final : public Layer {
 public:
  ConvNormLayer(const ConvNorm& options, const ResnetConfig& config)
      : options_(options),
        channels_(config.num_channels),
        size_(config.image_size),
        input_scale_(config.input_scale),
        eps_(config.batch_norm_eps) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor x =
        options_.is_first ? pictures(inputs[0]).to(params[0].scalar_type()) : inputs[0];
    at::Tensor y = at::conv2d(x, params[0], /*bias=*/{}, options_.stride, options_.kernel / 2);
    LayerResult result;
    y = batch_norm(y, params.subspan(1), eps_, context, result.observations);
    if (options_.has_residual) y = y.add_(inputs[1]);
    if (options_.has_relu) y = at::relu_(y);
    result.output = dropout(y, options_.dropout, context);
    return result;
  }

 private:
  at::Tensor pictures(const at::Tensor& rows) const {
    const at::Tensor numbers = rows.narrow(1, 0, channels_ * size_ * size_).to(at::kFloat);
    return at::mul(numbers, input_scale_).view({rows.size(0), channels_, size_, size_});
  }

  ConvNorm options_;
  std::int64_t channels_, size_;
  double input_scale_, eps_;
};

class ResnetHead final : public Layer {
 public:
  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor& rows = inputs[1];
    const at::Tensor labels = rows.select(1, rows.size(1) - 1);
    const at::Tensor logits = at::linear(inputs[0].mean({2, 3}), params[0], params[1]);
    return class_loss(logits, labels, context);
  }
};

}  // namespace

std::unique_ptr<Layer> make_conv_norm(const ConvNorm& options, const ResnetConfig& config) {
  return std::make_unique<ConvNormLayer>(options, config);
}

std::unique_ptr<Layer> make_resnet_head() { return std::make_unique<ResnetHead>(); }

}  // namespace spillway
