#include "models/pictures/cnn_layers.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <utility>

#include "models/base/batch_norm.h"
#include "models/base/class_loss.h"
#include "models/base/compute_type.h"
#include "models/base/dropout.h"

namespace spillway {
namespace {

class CnnLayer final : public Layer {
 public:
  explicit CnnLayer(CnnOp op) : op_(std::move(op)) {}

  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext& context) const override {
    const at::ScalarType type =
        params.empty() ? scalar_type(context.dtype) : params[0].scalar_type();
    const auto parts = [&](std::size_t term) {
      std::vector<at::Tensor> read;
      for (const CnnPart& part : op_.terms[term]) read.push_back(value_of(part, inputs, type));
      return read;
    };
    LayerResult result;
    at::Tensor y = computed(parts(0), params, context, result.observations);
    if (op_.factors >= 0) y = normalised(y, inputs[static_cast<std::size_t>(op_.factors)]);
    for (std::size_t term = 1; term < op_.terms.size(); ++term) y = y.add_(joined(parts(term)));
    y = dropout(activated(y), op_.dropout, context);
    if (op_.labels < 0) {
      result.output = y;
      return result;
    }
    const at::Tensor& rows = inputs[static_cast<std::size_t>(op_.labels)];
    LayerResult loss = class_loss(y.flatten(1), rows.select(1, rows.size(1) - 1), context);
    loss.observations = std::move(result.observations);
    return loss;
  }

 private:
  static at::Tensor joined(const std::vector<at::Tensor>& parts, int dimension = 1) {
    return parts.size() == 1 ? parts[0] : at::cat(parts, dimension);
  }

  at::Tensor value_of(const CnnPart& part, std::span<const at::Tensor> inputs,
                      at::ScalarType type) const {
    std::vector<at::Tensor> strips;
    for (const CnnStrip& strip : part.strips) {
      at::Tensor x = inputs[strip.input];
      if (x.scalar_type() == at::kLong) x = pictures(x).to(type);
      const auto& [begin, end] = strip.rows;
      strips.push_back(end == 0 ? x : x.narrow(2, begin, end - begin));
    }
    at::Tensor x = joined(strips, 2);
    if (part.pool == CnnPool::average) x = x.mean({2, 3}, /*keepdim=*/true);
    if (part.pool == CnnPool::maximum) x = at::amax(x, {2, 3}, /*keepdim=*/true);
    return part.flat ? x.flatten(1) : x;
  }

  at::Tensor pictures(const at::Tensor& rows) const {
    const auto& [channels, size, scale] = op_.pictures;
    const at::Tensor numbers = rows.narrow(1, 0, channels * size * size).to(at::kFloat);
    return at::mul(numbers, scale).view({rows.size(0), channels, size, size});
  }

  /// A new tensor, which may be written.
  at::Tensor computed(const std::vector<at::Tensor>& parts, std::span<const at::Tensor> params,
                      const LayerContext& context, std::vector<at::Tensor>& observations) const {
    const auto& [height, width] = op_.layer.kernel_size;
    const at::IntArrayRef stride = op_.layer.stride;
    const auto& [above, below] = op_.row_padding;
    const CnnSize padding{above == below ? above : 0, op_.layer.padding[1]};
    switch (op_.layer.type) {
      case CnnLayerType::conv: {
        const bool has_bias = !op_.has_norm && params.size() > 1;
        const at::Tensor bias = has_bias ? params[1] : at::Tensor{};
        at::Tensor y = at::conv2d(padded(joined(parts), 0), params[0], bias, stride, padding);
        if (!op_.has_norm) return y;
        return batch_norm(y, params.subspan(1), op_.norm_eps, context, observations);
      }
      case CnnLayerType::max_pool: {
        const at::Tensor x = padded(joined(parts), -std::numeric_limits<double>::infinity());
        return at::max_pool2d(x, {height, width}, stride, padding);
      }
      case CnnLayerType::avg_pool:
        return at::avg_pool2d(padded(joined(parts), 0), {height, width}, stride, padding);
      case CnnLayerType::linear:
        return at::linear(joined(parts).flatten(1), params[0], params[1]);
      default:
        return at::cat(parts, 1);
    }
  }

  /// With rows of padding if those above and below are not as many.
  at::Tensor padded(const at::Tensor& x, double value) const {
    const auto& [above, below] = op_.row_padding;
    return above == below ? x : at::constant_pad_nd(x, {0, 0, above, below}, value);
  }

  at::Tensor activated(at::Tensor y) const {
    switch (op_.layer.activation) {
      case CnnActivation::relu:
        return at::relu_(y);
      case CnnActivation::gelu:
        return at::gelu(y);
      case CnnActivation::tanh:
        return at::tanh(y);
      case CnnActivation::none:
        break;
    }
    return y;
  }

  CnnOp op_;
};

class Moments final : public Layer {
 public:
  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor>,
                      const LayerContext& context) const override {
    const at::Tensor& x = inputs[0];
    if (!context.training)
      return {.output = at::zeros({2, x.size(1)}, x.options().dtype(at::kFloat))};
    return {.output = moments(x)};
  }
};

class Factors final : public Layer {
 public:
  Factors(std::vector<double> shares, std::int64_t count, double eps)
      : shares_(std::move(shares)), count_(count), eps_(eps) {}

  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext& context) const override {
    LayerResult result;
    result.output =
        batch_norm_factors(inputs, shares_, count_, params, eps_, context, result.observations);
    return result;
  }

 private:
  std::vector<double> shares_;
  std::int64_t count_;
  double eps_;
};

}  // namespace

std::unique_ptr<Layer> make_cnn_layer(CnnOp op) {
  return std::make_unique<CnnLayer>(std::move(op));
}
std::unique_ptr<Layer> make_cnn_moments() { return std::make_unique<Moments>(); }
std::unique_ptr<Layer> make_cnn_factors(std::vector<double> shares, std::int64_t count,
                                        double eps) {
  return std::make_unique<Factors>(std::move(shares), count, eps);
}

}  // namespace spillway
