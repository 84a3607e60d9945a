#include "models/modules/module_layer.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mse_loss.h>

#include <cassert>
#include <utility>

#include "core/base/mutex.h"
#include "models/base/dropout.h"
#include "models/modules/module_statistics.h"

namespace spillway {
namespace {

using Tensors = std::span<const at::Tensor>;

class ModuleLayer final : public Layer {
 public:
  ModuleLayer(torch::nn::AnyModule module, std::unique_ptr<RowPart> input)
      : module_(std::move(module)),
        parameters_(module_.ptr()->parameters()),
        statistics_(*module_.ptr()),
        input_(std::move(input)) {
    ModuleStatistics::forget_the_past(*module_.ptr());
    statistics_.release();
    for (at::Tensor& parameter : parameters_) {
      parameter.set_data(at::empty({0}, parameter.options().requires_grad(false)));
    }
  }

  // The lease holds the mutex beyond the call.
  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override
      SPILLWAY_NO_THREAD_SAFETY_ANALYSIS {
    auto lease = std::make_shared<Lease>(mutex_, statistics_);
    point_at(params, inputs[0].device(), context.training);
    torch::nn::Module& module = *module_.ptr();
    if (module.is_training() != context.training) module.train(context.training);
    at::Tensor x = input_ ? input_->of(inputs[0]) : inputs[0];
    LayerResult result{
        .output = module_.forward(std::move(x)), .leaves = parameters_, .lease = std::move(lease)};
    if (context.training) result.observations = statistics_.observations();
    return result;
  }

 private:
  /// What the module holds of a call ends with it.
  struct Lease {
    Lease(Mutex& mutex, ModuleStatistics& of_module) : turn(mutex), statistics(of_module) {}
    ~Lease() { statistics.release(); }
    MutexLock turn;
    ModuleStatistics& statistics;
  };

  /// Parameters come first, then statistics.
  void point_at(Tensors params, at::Device device, bool training) const SPILLWAY_REQUIRES(mutex_) {
    assert(params.size() == parameters_.size() + statistics_.all().size());
    for (std::size_t p = 0; p < parameters_.size(); ++p) parameters_[p].set_data(params[p]);
    if (training) {
      statistics_.start_observing(device);
    } else {
      statistics_.use(params.subspan(parameters_.size()));
    }
  }

  mutable Mutex mutex_;
  mutable torch::nn::AnyModule module_ SPILLWAY_GUARDED_BY(mutex_);
  /// The module's own.
  mutable std::vector<at::Tensor> parameters_ SPILLWAY_GUARDED_BY(mutex_);
  mutable ModuleStatistics statistics_ SPILLWAY_GUARDED_BY(mutex_);
  std::unique_ptr<RowPart> input_;
};

class Dropout final : public Layer {
 public:
  Dropout(double p, std::unique_ptr<RowPart> input) : p_(p), input_(std::move(input)) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    return {.output = dropout(input_ ? input_->of(inputs[0]) : inputs[0], p_, context)};
  }

 private:
  double p_;
  std::unique_ptr<RowPart> input_;
};

class CrossEntropy final : public Layer {
 public:
  explicit CrossEntropy(RowPart targets) : targets_(std::move(targets)) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext&) const override {
    const at::Tensor targets = targets_.of(inputs[1]).reshape({-1}).to(at::kLong);
    const at::Tensor logits = inputs[0].reshape({targets.numel(), -1});
    return {.output = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum),
            .weight = static_cast<double>(targets.numel())};
  }

 private:
  RowPart targets_;
};

class MeanSquaredError final : public Layer {
 public:
  explicit MeanSquaredError(RowPart targets) : targets_(std::move(targets)) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext&) const override {
    const at::Tensor& x = inputs[0];
    return {.output = at::mse_loss(x, targets_.of(inputs[1]).view(x.sizes()), at::Reduction::Sum),
            .weight = static_cast<double>(x.numel())};
  }

 private:
  RowPart targets_;
};

}  // namespace

std::int64_t RowPart::elements() const {
  std::int64_t n = 1;
  for (const std::int64_t size : shape) n *= size;
  return n;
}

at::Tensor RowPart::of(const at::Tensor& rows) const {
  std::vector<std::int64_t> sizes{rows.size(0)};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return rows.narrow(1, begin, elements()).reshape(sizes);
}

std::unique_ptr<Layer> make_module_layer(torch::nn::AnyModule module,
                                         std::unique_ptr<RowPart> input) {
  return std::make_unique<ModuleLayer>(std::move(module), std::move(input));
}

std::unique_ptr<Layer> make_dropout_layer(double p, std::unique_ptr<RowPart> input) {
  return std::make_unique<Dropout>(p, std::move(input));
}

std::unique_ptr<Layer> make_cross_entropy_layer(RowPart targets) {
  return std::make_unique<CrossEntropy>(std::move(targets));
}

std::unique_ptr<Layer> make_mse_layer(RowPart targets) {
  return std::make_unique<MeanSquaredError>(std::move(targets));
}

}  // namespace spillway
