#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "spillway/error.h"
#include "spillway/weights.h"

namespace spillway {

/// Throws Error if it cannot be copied to `tensor`.
static const at::Tensor& value_for(std::span<const NamedTensor> weights, const std::string& name,
                                   const at::Tensor& tensor) {
  const auto found = std::ranges::find(weights, name, &NamedTensor::name);
  if (found == weights.end()) {
    throw Error(
        fmt::format("the module has the tensor '{}', which is not among the weights", name));
  }
  const at::Tensor& value = found->value;
  if (value.sizes() == tensor.sizes() && value.scalar_type() == tensor.scalar_type()) return value;
  const auto text = [](const at::Tensor& of) {
    return fmt::format("{} [{}]", c10::toString(of.scalar_type()), fmt::join(of.sizes(), ", "));
  };
  throw Error(fmt::format("the tensor '{}' is {} in the module, but {} among the weights", name,
                          text(tensor), text(value)));
}

void load_weights(std::span<const NamedTensor> weights, torch::nn::Module& module,
                  const std::string& prefix) {
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  for (const auto& named : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : named) {
      const at::Tensor& tensor = item.value();
      const std::string name = prefix + item.key();
      const bool is_known = std::ranges::count(weights, name, &NamedTensor::name) > 0;
      const bool is_tied =
          std::ranges::any_of(copies, [&](const auto& copy) { return copy.first.is_same(tensor); });
      if (is_known || !is_tied) copies.emplace_back(tensor, value_for(weights, name, tensor));
    }
  }
  const c10::NoGradGuard no_grad;
  for (auto& [to, from] : copies) to.copy_(from);
}

}  // namespace spillway
