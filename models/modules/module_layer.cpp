#include "models/modules/module_layer.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cassert>
#include <utility>

#include "core/base/mutex.h"
#include "models/modules/checked_module.h"
#include "models/modules/keyed_dropout.h"
#include "models/modules/module_statistics.h"

namespace spillway {
namespace {

using Tensors = std::span<const at::Tensor>;

/// Floating-point numbers in the type of a layer.
at::Tensor rounded(const at::Tensor& x, DType dtype) {
  const at::ScalarType type = dtype == DType::bf16 ? at::kBFloat16 : at::kFloat;
  const bool is_other = x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
  return is_other ? x.to(type) : x;
}

std::vector<at::Tensor> take(const std::vector<Argument>& arguments, Tensors inputs, DType dtype) {
  std::vector<at::Tensor> taken;
  for (const Argument& argument : arguments) {
    const at::Tensor& input = inputs[argument.input];
    taken.push_back(rounded(argument.part ? argument.part->of(input) : input, dtype));
  }
  return taken;
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

class ModuleLayer final : public Layer {
 public:
  ModuleLayer(torch::nn::AnyModule module, std::vector<Argument> arguments)
      : module_(std::move(module)),
        parameters_(tensors_of(unique_parameters(*module_.ptr()))),
        buffers_(tensors_of(constant_buffers(*module_.ptr()))),
        statistics_(*module_.ptr()),
        arguments_(std::move(arguments)) {
    ModuleStatistics::forget_the_past(*module_.ptr());
    statistics_.release();
    for (auto* tensors : {&parameters_, &buffers_}) {
      for (at::Tensor& tensor : *tensors) {
        tensor.set_data(at::empty({0}, tensor.options().requires_grad(false)));
      }
    }
  }

  // The lease holds the mutex beyond the call.
  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override
      SPILLWAY_NO_THREAD_SAFETY_ANALYSIS {
    auto lease = std::make_shared<Lease>(mutex_, statistics_);
    point_at(params, inputs[0].device(), context.training);
    torch::nn::Module& module = *module_.ptr();
    if (module.is_training() != context.training) module.train(context.training);
    const KeyedDropout keyed(context);
    const at::Tensor output = call(module_, take(arguments_, inputs, context.dtype));
    LayerResult result{
        .output = rounded(output, context.dtype), .leaves = parameters_, .lease = std::move(lease)};
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

  /// Parameters come first, then statistics, then buffers.
  void point_at(Tensors params, at::Device device, bool training) const SPILLWAY_REQUIRES(mutex_) {
    const std::size_t num_statistics = statistics_.all().size();
    assert(params.size() == parameters_.size() + num_statistics + buffers_.size());
    for (std::size_t p = 0; p < parameters_.size(); ++p) parameters_[p].set_data(params[p]);
    params = params.subspan(parameters_.size());
    if (training) {
      statistics_.start_observing(device);
    } else {
      statistics_.use(params.first(num_statistics));
    }
    params = params.subspan(num_statistics);
    for (std::size_t b = 0; b < buffers_.size(); ++b) buffers_[b].set_data(params[b]);
  }

  mutable Mutex mutex_;
  mutable torch::nn::AnyModule module_ SPILLWAY_GUARDED_BY(mutex_);
  /// The module's own.
  mutable std::vector<at::Tensor> parameters_ SPILLWAY_GUARDED_BY(mutex_);
  mutable std::vector<at::Tensor> buffers_ SPILLWAY_GUARDED_BY(mutex_);
  mutable ModuleStatistics statistics_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<Argument> arguments_;
};

class FunctionLayer final : public Layer {
 public:
  FunctionLayer(Graph::Function function, std::vector<Argument> arguments)
      : function_(std::move(function)), arguments_(std::move(arguments)) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    const KeyedDropout keyed(context);
    return {.output = rounded(function_(take(arguments_, inputs, context.dtype)), context.dtype)};
  }

 private:
  Graph::Function function_;
  std::vector<Argument> arguments_;
};

class LossLayer final : public Layer {
 public:
  LossLayer(LossFunction function, std::vector<Metric> metrics, std::vector<Argument> arguments)
      : function_(std::move(function)),
        metrics_(std::move(metrics)),
        arguments_(std::move(arguments)) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    const std::vector<at::Tensor> taken = take(arguments_, inputs, DType::f32);
    LossSum loss = function_(taken);
    LayerResult result{.output = std::move(loss.sum), .weight = loss.weight};
    if (context.training) return result;
    std::vector<at::Tensor> sums;
    for (const Metric& metric : metrics_) {
      if (metric.sums) sums.push_back(metric.sums(taken).to(at::kDouble));
    }
    if (!sums.empty()) result.metrics = at::cat(sums);
    result.prediction = taken[0];
    return result;
  }

 private:
  LossFunction function_;
  std::vector<Metric> metrics_;
  std::vector<Argument> arguments_;
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
  const at::Tensor part = rows.narrow(1, begin, elements()).reshape(sizes);
  return dtype == DType::i64 ? part.to(at::kLong) : part;
}

std::unique_ptr<Layer> make_module_layer(torch::nn::AnyModule module,
                                         std::vector<Argument> arguments) {
  return std::make_unique<ModuleLayer>(std::move(module), std::move(arguments));
}

std::unique_ptr<Layer> make_function_layer(Graph::Function function,
                                           std::vector<Argument> arguments) {
  return std::make_unique<FunctionLayer>(std::move(function), std::move(arguments));
}

std::unique_ptr<Layer> make_loss_layer(LossFunction function, std::vector<Metric> metrics,
                                       std::vector<Argument> arguments) {
  return std::make_unique<LossLayer>(std::move(function), std::move(metrics), std::move(arguments));
}

}  // namespace spillway
