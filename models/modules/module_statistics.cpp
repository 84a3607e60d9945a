#include "models/modules/module_statistics.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <cassert>
#include <utility>

namespace spillway {
namespace {

/// Calls `use` with the options of `module`, if it is a batch norm.
template <typename Use>
void with_batch_norm(torch::nn::Module& module, const Use& use) {
  const auto as_one = [&](auto* norm) {
    if (norm != nullptr) use(norm->options);
  };
  as_one(module.as<torch::nn::BatchNorm1d>());
  as_one(module.as<torch::nn::BatchNorm2d>());
  as_one(module.as<torch::nn::BatchNorm3d>());
}

StatisticSpec spec_of(const at::Tensor& buffer, const torch::nn::BatchNormOptions& options) {
  const bool counts = buffer.scalar_type() == at::kLong;
  return {.kind = counts ? StatisticSpec::Kind::count : StatisticSpec::Kind::average,
          .momentum = options.momentum()};
}

}  // namespace

ModuleStatistics::ModuleStatistics(torch::nn::Module& module) {
  for (const auto& part : module.named_modules(/*name_prefix=*/"", /*include_self=*/true)) {
    with_batch_norm(*part.value(), [&](const torch::nn::BatchNormOptions& options) {
      for (at::Tensor& parameter : part.value()->parameters(/*recurse=*/false)) {
        parameters_.push_back(std::move(parameter));
      }
      for (const auto& buffer : part.value()->named_buffers(/*recurse=*/false)) {
        const std::string name =
            part.key().empty() ? buffer.key() : part.key() + "." + buffer.key();
        all_.push_back(
            {name, spec_of(buffer.value(), options), buffer.value().sizes().vec(), buffer.value()});
        nothing_.push_back(at::empty({0}, buffer.value().options()));
      }
    });
  }
}

bool ModuleStatistics::contains(const std::string& buffer) const {
  return std::ranges::find(all_, buffer, &Statistic::name) != all_.end();
}

bool ModuleStatistics::is_of_norm(const at::Tensor& parameter) const {
  const auto is_same = [&](const at::Tensor& other) { return other.is_same(parameter); };
  return std::ranges::any_of(parameters_, is_same);
}

void ModuleStatistics::forget_the_past(torch::nn::Module& module) {
  for (const auto& part : module.modules()) {
    with_batch_norm(*part, [](torch::nn::BatchNormOptions& options) { options.momentum(1.0); });
  }
}

void ModuleStatistics::start_observing(at::Device device) {
  for (Statistic& statistic : all_) {
    const at::TensorOptions options = statistic.buffer.options().device(device);
    statistic.buffer.set_data(at::zeros(statistic.shape, options));
  }
}

std::vector<at::Tensor> ModuleStatistics::observations() const {
  std::vector<at::Tensor> observed;
  for (const Statistic& statistic : all_) {
    if (statistic.spec.kind == StatisticSpec::Kind::average) {
      observed.push_back(statistic.buffer.detach());
    }
  }
  return observed;
}

void ModuleStatistics::use(std::span<const at::Tensor> values) {
  assert(values.size() == all_.size());
  for (std::size_t i = 0; i < values.size(); ++i) all_[i].buffer.set_data(values[i]);
}

void ModuleStatistics::release() {
  for (std::size_t i = 0; i < all_.size(); ++i) all_[i].buffer.set_data(nothing_[i]);
}

}  // namespace spillway
