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
#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>

#include "models/base/batch_norm.h"
#include "models/base/class_loss.h"
#include "models/base/compute_type.h"
#include "models/base/dropout.h"

namespace spillway {
namespace {

/// What a layer reads of its inputs, for which costs differ though shapes are equal.
std::string text(const std::vector<std::vector<CnnPart>>& terms) {
  std::string text;
  for (const auto& term : terms) {
    for (const CnnPart& part : term) {
      for (const CnnStrip& strip : part.strips) {
        text += fmt::format("+{}", strip.input);
        if (strip.rows.end > 0) text += fmt::format(":{}", strip.rows.size());
      }
      if (part.pool != CnnPool::none) text += part.pool == CnnPool::average ? "avg" : "max";
      if (part.flat) text += "flat";
    }
    text += ";";
  }
  return text;
}

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
      const at::Tensor& input = inputs[strip.input];
      const bool is_batch = input.scalar_type() == at::kLong;
      const at::Tensor x = rows_of(is_batch ? pictures(input) : input, strip.rows);
      strips.push_back(is_batch ? at::mul(x.to(at::kFloat), op_.pictures.scale).to(type) : x);
    }
    at::Tensor x = joined(strips, 2);
    if (part.pool == CnnPool::average) x = x.mean({2, 3}, /*keepdim=*/true);
    if (part.pool == CnnPool::maximum) x = at::amax(x, {2, 3}, /*keepdim=*/true);
    return part.flat ? x.flatten(1) : x;
  }

  at::Tensor pictures(const at::Tensor& rows) const {
    const auto& [channels, size, scale] = op_.pictures;
    return rows.narrow(1, 0, channels * size * size).view({rows.size(0), channels, size, size});
  }

  static at::Tensor rows_of(const at::Tensor& x, const RowRange& rows) {
    return rows.end == 0 ? x : x.narrow(2, rows.begin, rows.size());
  }

  /// A new tensor, which may be written, unless normalised() makes one of it.
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
        return op_.factors < 0 ? at::cat(parts, 1) : joined(parts);
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

std::string kind_of(const std::string& family, const CnnOp& op) {
  const CnnLayerConfig& layer = op.layer;
  const auto text_of = [](const CnnSize& size) { return fmt::format("{}x{}", size[0], size[1]); };
  std::string kind = fmt::format("{}.{}", family, to_string(layer.type));
  if (layer.kernel_size[0] > 0) {
    kind += fmt::format("/{}/{}/{}/{}", text_of(layer.kernel_size), text_of(layer.stride),
                        text_of(op.row_padding), layer.padding[1]);
  }
  kind += text(op.terms);
  if (op.factors >= 0) kind += "+factors";
  if (layer.activation != CnnActivation::none) {
    kind += fmt::format("+{}", to_string(layer.activation));
  }
  return op.dropout > 0 ? kind + "+dropout" : kind;
}

std::unique_ptr<Layer> make_cnn_layer(CnnOp op) {
  return std::make_unique<CnnLayer>(std::move(op));
}
std::unique_ptr<Layer> make_cnn_moments() { return std::make_unique<Moments>(); }
std::unique_ptr<Layer> make_cnn_factors(std::vector<double> shares, std::int64_t count,
                                        double eps) {
  return std::make_unique<Factors>(std::move(shares), count, eps);
}

}  // namespace spillway
