#include "trainer/compute/running_statistic.h"

#include <cstring>

namespace spillway {

void update_statistic(std::byte* value, const ParamSpec& spec, const float* sum,
                      ElementRange elements, int virtual_nodes, std::int64_t steps) {
  if (!spec.is_observed()) {
    std::memcpy(value, &steps, sizeof steps);
    return;
  }
  auto* average = reinterpret_cast<float*>(value);
  const double momentum = spec.statistic.momentum.value_or(1 / static_cast<double>(steps));
  for (std::int64_t i = elements.begin; i < elements.end; ++i) {
    const double mean = static_cast<double>(sum[i - elements.begin]) / virtual_nodes;
    average[i] =
        static_cast<float>((1 - momentum) * static_cast<double>(average[i]) + momentum * mean);
  }
}

}  // namespace spillway
