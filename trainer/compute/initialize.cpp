#include "trainer/compute/initialize.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <vector>

#include "core/device/kernels.h"
#include "core/spec/stored_tensor.h"

namespace spillway {
namespace {

/// The step number of draws outside any step.
constexpr std::uint32_t kInitialization = 0xFFFFFFFFu;

}  // namespace

void initialize(float* values, const ParamSpec& spec, std::uint64_t seed, std::size_t tensor) {
  const auto elements = static_cast<std::size_t>(spec.tensor.elements());
  switch (spec.init.kind) {
    case InitSpec::Kind::zeros:
      std::fill_n(values, elements, 0.0f);
      return;
    case InitSpec::Kind::ones:
      std::fill_n(values, elements, 1.0f);
      return;
    case InitSpec::Kind::normal: {
      const RandomKey key{seed, kInitialization, static_cast<std::uint32_t>(tensor), 0};
      for_each_run(spec, [&](const StoredRun& run) {
        kernels::fill_normal(values + run.in_param, static_cast<std::size_t>(run.length),
                             spec.init.stddev, key, static_cast<std::size_t>(run.in_tensor));
      });
      return;
    }
  }
}

void initialize(const Model& model, std::uint64_t seed, std::span<std::byte* const> params) {
  if (std::ranges::none_of(params, [](const std::byte* param) { return param != nullptr; })) return;
  if (model.initialize) return model.initialize(seed, params);
  const std::vector<std::size_t> tensors = tensor_numbers(model.spec);
  tbb::parallel_for(std::size_t{0}, params.size(), [&](std::size_t p) {
    const ParamSpec& spec = model.spec.params[p];
    if (params[p] == nullptr || spec.master().dtype != DType::f32) return;
    initialize(reinterpret_cast<float*>(params[p]), spec, seed, tensors[p]);
  });
}

}  // namespace spillway
