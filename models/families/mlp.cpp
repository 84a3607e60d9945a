#include "models/families/mlp.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tanh.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "models/base/class_loss.h"
#include "models/base/dropout.h"
#include "models/base/freeze.h"
#include "models/base/model_checks.h"
#include "spillway/model_builder.h"

namespace spillway {
namespace {

using Tensors = std::span<const at::Tensor>;

at::Tensor activate(const at::Tensor& x, Activation act) {
  if (act == Activation::relu) return at::relu(x);
  if (act == Activation::tanh) return at::tanh(x);
  return at::gelu(x);
}

/// [B, I] -> [B, H], without the activation. Parameters: [H, I], [H]. The first one reads the rows
/// instead, [B, I + 1].
class HiddenPiece final : public Layer {
 public:
  HiddenPiece(const MlpConfig& config, bool is_first)
      : input_size_(is_first ? config.input_size : 0), input_scale_(config.input_scale) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext&) const override {
    const at::Tensor x =
        input_size_ == 0 ? inputs[0] : scaled(inputs[0]).to(params[0].scalar_type());
    return {.output = at::linear(x, params[0], params[1])};
  }

 private:
  at::Tensor scaled(const at::Tensor& rows) const {
    return at::mul(rows.narrow(1, 0, input_size_).to(at::kFloat), input_scale_);
  }

  std::int64_t input_size_;  // 0: not the first
  double input_scale_;
};

/// The outputs of all pieces, [B, H'] each -> [B, H], with the activation.
class HiddenJoin final : public Layer {
 public:
  explicit HiddenJoin(const MlpConfig& config)
      : act_(config.hidden_act), dropout_(config.dropout) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    const at::Tensor x = at::cat(at::TensorList(inputs.data(), inputs.size()), 1);
    return {.output = dropout(activate(x, act_), dropout_, context)};
  }

 private:
  Activation act_;
  double dropout_;
};

/// Both in one layer.
class Hidden final : public Layer {
 public:
  Hidden(const MlpConfig& config, bool is_first)
      : product_(config, is_first), act_(config.hidden_act), dropout_(config.dropout) {}

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor x = product_.forward(inputs, params, context).output;
    return {.output = dropout(activate(x, act_), dropout_, context)};
  }

 private:
  HiddenPiece product_;
  Activation act_;
  double dropout_;
};

/// [B, H], rows -> sum of the cross entropies; weight: B. Parameters: [L, H], [L].
class MlpHead final : public Layer {
 public:
  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    const at::Tensor& rows = inputs[1];
    const at::Tensor logits = at::linear(inputs[0], params[0], params[1]);
    const at::Tensor labels = rows.select(1, rows.size(1) - 1);
    return class_loss(logits, labels, context);
  }
};

/// Costs depend on more than shapes.
std::string kind_of(const MlpConfig& config, const char* layer) {
  return fmt::format("{}/{}{}", layer, to_string(config.hidden_act),
                     config.dropout > 0 ? "+dropout" : "");
}

/// Standard deviation of the initial weights.
double stddev_of(const Dim& in) { return std::sqrt(2 / static_cast<double>(in.size)); }

/// Adds the pieces of hidden layer `whole`; returns the edges that they make.
std::vector<int> add_pieces(ModelBuilder& model, const MlpConfig& config, const LayerSpec& whole,
                            const Dim& in, const Dim& sample) {
  const Dim out{"hidden", config.hidden_size};
  const bool is_first = whole.inputs.front() == 0;
  std::vector<int> edges;
  for (int i = 0; i < whole.pieces; ++i) {
    LayerSpec piece = whole;
    piece.name = fmt::format("{}/{}", whole.name, i);
    piece.kind = is_first ? "mlp.input.piece" : "mlp.hidden.piece";
    piece.piece = i;
    model.add_linear(piece.params, whole.name, out, in, stddev_of(in), i, whole.pieces);
    const Dim part{"hidden", out.size * (i + 1) / whole.pieces - out.size * i / whole.pieces};
    edges.push_back(model.add_layer(std::move(piece),
                                    std::make_unique<HiddenPiece>(config, is_first),
                                    {DType::f32, {sample, part}}));
  }
  return edges;
}

}  // namespace

std::unique_ptr<Model> make_mlp(const MlpConfig& config, std::int64_t vn_size) {
  config.validate();
  detail::check_vn_size(vn_size,
                        std::max({config.input_size + 1, config.hidden_size, config.num_labels}));
  const Dim sample{"sample", vn_size}, hidden{"hidden", config.hidden_size};
  ModelBuilder model("mlp");
  const int rows =
      model.add_batch("rows", {DType::i64, {sample, {"number", config.input_size + 1}}});
  model.spec().indices = {{config.input_size, config.input_size + 1, config.num_labels}};
  const auto add_linear = [&](const std::string& name, const Dim& out, const Dim& in) {
    std::vector<int> params;
    model.add_linear(params, name, out, in, stddev_of(in));
    return params;
  };
  int last = rows;
  Dim width{"input", config.input_size};
  const auto pieces = static_cast<int>(config.num_pieces().hidden);
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) {
    const std::string name = fmt::format("h.{}", l);
    const LayerSpec spec{.name = name, .inputs = {last}, .pieces = pieces};
    const TensorSpec output{DType::f32, {sample, hidden}};
    if (pieces > 1) {
      LayerSpec join{.name = name,
                     .kind = kind_of(config, "mlp.join"),
                     .inputs = add_pieces(model, config, spec, width, sample),
                     .draws_as = static_cast<int>(l)};
      last = model.add_layer(std::move(join), std::make_unique<HiddenJoin>(config), output);
    } else {
      LayerSpec whole = spec;
      whole.kind = kind_of(config, l == 0 ? "mlp.input" : "mlp.hidden");
      whole.params = add_linear(name, hidden, width);
      last = model.add_layer(std::move(whole), std::make_unique<Hidden>(config, l == 0), output);
    }
    width = {"hidden_in", config.hidden_size};
  }
  model.add_loss({.name = "head",
                  .kind = "mlp.head",
                  .params = add_linear("head", {"label", config.num_labels}, width),
                  .inputs = {last, rows}},
                 std::make_unique<MlpHead>());
  model.spec().metrics = {accuracy().spec};
  freeze(model.spec(), config.freeze);
  return std::move(model).build();
}

}  // namespace spillway
