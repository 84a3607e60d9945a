#include "trainer/host_rates.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <cstring>
#include <vector>

#include "core/kernels.h"
#include "trainer/counting_allocator.h"

namespace spillway {
namespace {

double measure_matmul() {
  constexpr std::int64_t kSize = 512;
  const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
  const double flops = 2.0 * kSize * kSize * kSize;
  return flops / median_seconds<5>([&] { at::mm(a, b); });
}

}  // namespace

HostRates measure_host_rates() {
  initialize_torch();
  constexpr std::size_t kElements = std::size_t{1} << 20;
  std::vector<float> p(kElements, 1), m(kElements, 1), v(kElements, 1), g(kElements, 1);
  const double bytes = kElements * sizeof(float);
  const kernels::AdamW hyper{.learning_rate = 1e-3f};
  return {.copy_bytes_per_s =
              bytes / median_seconds([&] { std::memcpy(p.data(), g.data(), kElements * 4); }),
          .update_bytes_per_s = bytes / median_seconds([&] {
                                  kernels::adamw(p.data(), m.data(), v.data(), g.data(), kElements,
                                                 hyper);
                                }),
          .reduce_bytes_per_s =
              bytes / median_seconds([&] { kernels::squared_norm(g.data(), kElements); }),
          .matmul_flops_per_s = measure_matmul()};
}

}  // namespace spillway
