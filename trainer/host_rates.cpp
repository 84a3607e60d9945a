#include "trainer/host_rates.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "core/device.h"
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

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRound(20);

/// How many matrix products the calling thread gets done until `end`; one at least.
std::int64_t multiply_until(Clock::time_point end) {
  constexpr std::int64_t kSize = 128;
  const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
  std::int64_t products = 0;
  do {
    at::mm(a, b);
    ++products;
  } while (Clock::now() < end);
  return products;
}

double thread_cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Matrix products a second of a core that the calling thread has for itself.
double products_alone() {
  const double begin_s = thread_cpu_s();
  const auto products = static_cast<double>(multiply_until(Clock::now() + kRound));
  return products / (thread_cpu_s() - begin_s);
}

/// Matrix products a second by all of `threads` together.
double products_together(int threads) {
  std::atomic<std::int64_t> products = 0;
  {
    const auto end = Clock::now() + kRound;
    std::vector<std::jthread> workers;
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back([&products, end] { products += multiply_until(end); });
    }
  }
  return static_cast<double>(products) / std::chrono::duration<double>(kRound).count();
}

}  // namespace

double measure_crowding(int threads) {
  initialize_torch();
  constexpr int kRounds = 6;
  double alone = 0, together = 0;  // the best of all rounds: whatever disturbs one only slows it
  for (int i = 0; i < kRounds; ++i) {
    alone = std::max(alone, products_alone());
    together = std::max(together, products_together(threads));
  }
  return std::max(1.0, threads * alone / together);
}

double measure_copy_latency(Bytes link_bytes_per_s) {
  constexpr Bytes kBytes = 64;
  const auto device = make_cpu_device("latency", kPage, {.link_bytes_per_s = link_bytes_per_s});
  const auto from = device->allocate_host(kBytes), to = device->allocate(kBytes);
  return median_seconds([&] {
    device->host_to_device().copy_async(to->data(), from->data(), kBytes);
    device->host_to_device().record().wait();
  });
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
