#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "spillway/model.h"
#include "spillway/trial_config.h"

namespace spillway::testing {

/// A layer that calls a function before its forward; the function may change the context.
class WrappedLayer final : public Layer {
 public:
  using Before = std::function<void(LayerContext& context)>;
  WrappedLayer(std::unique_ptr<Layer> layer, Before before)
      : layer_(std::move(layer)), before_(std::move(before)) {}
  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext& context) const override {
    LayerContext changed = context;
    before_(changed);
    return layer_->forward(inputs, params, changed);
  }

 private:
  std::unique_ptr<Layer> layer_;
  Before before_;
};

/// The trial with `before` called before the forward of each layer, on any thread.
inline TrialConfig with_before(TrialConfig trial, const WrappedLayer::Before& before) {
  trial.model = [make = trial.model, before](std::int64_t vn_size) {
    auto model = make(vn_size);
    for (auto& layer : model->layers) {
      layer = std::make_unique<WrappedLayer>(std::move(layer), before);
    }
    return model;
  };
  return trial;
}

}  // namespace spillway::testing
