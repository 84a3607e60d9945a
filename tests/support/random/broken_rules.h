#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/support/models/wrapped_model.h"

/// Negative controls: trials that each break one rule of docs/exactness.md, as other trainers do.
/// They run in the same sessions and must have other bits.
namespace spillway::testing {

/// Numbers threads in the order of their first query; the constructing thread is 0.
class ThreadNumbers {
 public:
  ThreadNumbers() { mine(); }
  std::uint64_t mine() {
    const std::lock_guard lock(mutex_);
    return numbers_.try_emplace(std::this_thread::get_id(), numbers_.size()).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::thread::id, std::uint64_t> numbers_;
};

/// A trainer with a seed for each device: draws depend on the device. On one device there is one
/// seed.
inline TrialConfig seeded_by_device(const TrialConfig& trial) {
  return with_before(trial, [threads = std::make_shared<ThreadNumbers>()](LayerContext& context) {
    context.random.seed += threads->mine();
  });
}

/// Observes only on the first device, with the weight of `num_devices`.
class FirstDeviceObserves final : public Layer {
 public:
  FirstDeviceObserves(std::unique_ptr<Layer> layer, std::shared_ptr<ThreadNumbers> threads,
                      int num_devices)
      : layer_(std::move(layer)), threads_(std::move(threads)), num_devices_(num_devices) {}
  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext& context) const override {
    LayerResult result = layer_->forward(inputs, params, context);
    const bool counts = threads_->mine() <= 1;
    for (at::Tensor& seen : result.observations) seen = seen * (counts ? num_devices_ : 0);
    return result;
  }

 private:
  std::unique_ptr<Layer> layer_;
  std::shared_ptr<ThreadNumbers> threads_;
  int num_devices_;
};

/// A trainer whose devices keep separate running statistics: the result is that of the first. All
/// devices take part with equal shares.
inline TrialConfig statistics_by_device(TrialConfig trial, int num_devices) {
  trial.model = [make = trial.model, num_devices,
                 threads = std::make_shared<ThreadNumbers>()](std::int64_t vn_size) {
    auto model = make(vn_size);
    for (auto& layer : model->layers) {
      layer = std::make_unique<FirstDeviceObserves>(std::move(layer), threads, num_devices);
    }
    return model;
  };
  return trial;
}

/// A trainer that folds from the left on each device, then over devices: one group per lane. Over
/// two lanes that is the left fold over lanes.
inline TrialConfig summed_by_lane(TrialConfig trial, int lanes) {
  trial.train.lane_groups.clear();
  trial.train.data_parallel = trial.train.reduction_groups = lanes;
  return trial;
}

/// For the operations of LibTorch and MKL that this thread runs.
inline void use_two_threads() {
  at::set_num_threads(2);
  if (void* set = dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local")) {
    reinterpret_cast<int (*)(int)>(set)(2);
  }
}

/// Computes with two threads, backward too.
class TwoThreads final : public Layer {
 public:
  explicit TwoThreads(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {}
  LayerResult forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> params,
                      const LayerContext& context) const override {
    use_two_threads();
    LayerResult result = layer_->forward(inputs, params, context);
    if (result.output.requires_grad()) {
      result.output.register_hook([](const at::Tensor&) { use_two_threads(); });
    }
    return result;
  }

 private:
  std::unique_ptr<Layer> layer_;
};

/// A trainer that lets LibTorch and MKL compute each op with two threads.
inline TrialConfig with_two_threads_per_op(TrialConfig trial) {
  trial.model = [make = trial.model](std::int64_t vn_size) {
    auto model = make(vn_size);
    for (auto& layer : model->layers) layer = std::make_unique<TwoThreads>(std::move(layer));
    return model;
  };
  return trial;
}

}  // namespace spillway::testing
