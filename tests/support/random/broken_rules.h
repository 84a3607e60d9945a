#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/support/models/wrapped_model.h"

/// Trials that break one rule of docs/exactness.md each, as other trainers do, and go through the
/// same sessions otherwise: controls that must have other bits.
namespace spillway::testing {

/// Numbers the threads that ask, in order of their first question; the one that makes this is 0.
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

/// What a trainer does that seeds each device: draws depend on who computes. On one device it is
/// one seed.
inline TrialConfig seeded_by_device(const TrialConfig& trial) {
  return with_before(trial, [threads = std::make_shared<ThreadNumbers>()](LayerContext& context) {
    context.random.seed += threads->mine();
  });
}

/// Observes for the first device alone, with the weight of `num_devices`.
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

/// What a trainer does whose devices keep running statistics of their own: those of the first are
/// the result. Equal shares of devices that all take part.
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

/// What a trainer does that sums from the left on each device, then over devices: one group a lane.
/// Over two lanes that is the left fold over lanes.
inline TrialConfig summed_by_lane(TrialConfig trial, int lanes) {
  trial.train.lane_groups.clear();
  trial.train.data_parallel = trial.train.reduction_groups = lanes;
  return trial;
}

/// While it lives, LibTorch computes an op with so many threads. Sessions begin and end inside.
class LibTorchThreads {
 public:
  explicit LibTorchThreads(int threads) { at::set_num_threads(threads); }
  ~LibTorchThreads() { at::set_num_threads(1); }
  LibTorchThreads(const LibTorchThreads&) = delete;
  LibTorchThreads& operator=(const LibTorchThreads&) = delete;
};

}  // namespace spillway::testing
