#include "trainer/host_rates.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "core/kernels.h"
#include "trainer/counting_allocator.h"

namespace spillway {
namespace {

double measure_matmul() {
  constexpr std::int64_t kSize = 512;
  const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
  const double flops = 2.0 * kSize * kSize * kSize;
  return flops / median_seconds([&] { at::mm(a, b); });
}

/// Matrix products a second by all of `threads` together.
double products_per_s(int threads) {
  constexpr std::chrono::milliseconds kTime(30);
  constexpr std::int64_t kSize = 128;
  std::atomic<int> products = 0;
  const auto multiply = [&products, end = std::chrono::steady_clock::now() + kTime] {
    const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
    for (; std::chrono::steady_clock::now() < end; ++products) at::mm(a, b);
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < threads; ++i) workers.emplace_back(multiply);
  }
  return std::max(1, products.load()) / std::chrono::duration<double>(kTime).count();
}

}  // namespace

double measure_crowding(int threads) {
  initialize_torch();
  products_per_s(1);  // once to get warm
  return std::max(1.0, threads * products_per_s(1) / products_per_s(threads));
}

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
