#include "trainer/compute/running_statistic.h"

#include <cstring>

namespace spillway {

void update_statistic(std::byte* values, const ParamSpec& spec, const float* sum, std::int64_t size,
                      int virtual_nodes, std::int64_t steps) {
  if (!spec.is_observed()) {
    std::memcpy(values, &steps, sizeof steps);
    return;
  }
  auto* average = reinterpret_cast<float*>(values);
  const double momentum = spec.statistic.momentum.value_or(1 / static_cast<double>(steps));
  for (std::int64_t i = 0; i < size; ++i) {
    const double mean = static_cast<double>(sum[i]) / virtual_nodes;
    average[i] =
        static_cast<float>((1 - momentum) * static_cast<double>(average[i]) + momentum * mean);
  }
}

}  // namespace spillway
