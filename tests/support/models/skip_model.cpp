#include "tests/support/models/skip_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <span>
#include <utility>

#include "tests/support/models/tiny_gpt.h"

namespace spillway::testing {

std::vector<SkipPiece> skip_pieces() {
  const auto linear = [](const at::Tensor& x, const at::Tensor& w) {
    return at::tanh(at::linear(x, w));
  };
  return {
      {"u1",
       {"tokens"},
       [=](const Tensors& x, const Tensors& w) {
         return at::one_hot(x[0].select(1, 0), kSkipTokens)
                    .to(at::kFloat)
                    .narrow(1, 0, kSkipWidth)
                    .matmul(w[0]) +
                at::one_hot(x[0].select(1, 1), kSkipTokens)
                    .to(at::kFloat)
                    .narrow(1, 20, kSkipWidth)
                    .matmul(w[1]);
       },
       2},
      {"u2", {"u1"}, [=](const Tensors& x, const Tensors& w) { return linear(x[0], w[0]); }},
      {"u3", {"u2"}, [=](const Tensors& x, const Tensors& w) { return linear(x[0], w[0]); }},
      {"sign", {"u3"}, [](const Tensors& x, const Tensors&) { return at::sign(x[0]); }, 0},
      {"u4", {"u3", "u1"}, [](const Tensors& x, const Tensors&) { return x[0] + x[1]; }, 0},
      {"u5",
       {"u2", "u4"},
       [=](const Tensors& x, const Tensors& w) { return linear(x[0], w[0]) * x[1]; }},
      {"u6",
       {"u5", "sign"},
       [=](const Tensors& x, const Tensors& w) { return linear(x[0] * x[1], w[0]); }},
      {"loss",
       {"u6", "u1", "tokens"},
       [](const Tensors& x, const Tensors& w) {
         const auto target = at::remainder(x[2].select(1, 2), kSkipWidth);
         return at::cross_entropy_loss(at::linear(x[0] + x[1], w[0]), target, {},
                                       at::Reduction::Sum);
       }},
  };
}

namespace {

class SkipLayer final : public Layer {
 public:
  explicit SkipLayer(SkipFunction forward) : forward_(std::move(forward)) {}
  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext&) const override {
    return {.output = forward_({inputs.begin(), inputs.end()}, {params.begin(), params.end()}),
            .weight = static_cast<double>(inputs[0].size(0))};
  }

 private:
  SkipFunction forward_;
};

}  // namespace

std::unique_ptr<Model> make_skip_model(std::int64_t vn_size) {
  auto model = std::make_unique<Model>();
  ModelSpec& spec = model->spec;
  spec.family = "skip";
  spec.edges.push_back(
      {"tokens", {DType::i64, {{"sample", vn_size}, {"position", 17}}}, -1, false});
  for (const SkipPiece& piece : skip_pieces()) {
    LayerSpec layer{.name = piece.name, .kind = "skip." + piece.name};
    for (int i = 0; i < piece.num_weights; ++i) {
      layer.params.push_back(static_cast<int>(spec.params.size()));
      spec.params.push_back({piece.name + "." + std::to_string(i),
                             {DType::f32, {{"out", kSkipWidth}, {"in", kSkipWidth}}},
                             {InitSpec::Kind::normal, 0.3}});
    }
    for (const std::string& name : piece.reads) {
      const auto edge = std::ranges::find(spec.edges, name, &EdgeSpec::name);
      layer.inputs.push_back(static_cast<int>(edge - spec.edges.begin()));
    }
    if (piece.name != "loss") {
      layer.outputs = {static_cast<int>(spec.edges.size())};
      spec.edges.push_back({piece.name,
                            {DType::f32, {{"sample", vn_size}, {"channel", kSkipWidth}}},
                            static_cast<int>(spec.layers.size()),
                            piece.name != "sign"});
    }
    spec.layers.push_back(std::move(layer));
    model->layers.push_back(std::make_unique<SkipLayer>(piece.forward));
  }
  return model;
}

TrialConfig skip_trial() {
  TrialConfig trial = tiny_trial("skip");
  trial.model = make_skip_model;
  return trial;
}

}  // namespace spillway::testing
