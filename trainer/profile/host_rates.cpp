#include "trainer/profile/host_rates.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "core/base/thread_cpu_time.h"
#include "core/device/device.h"
#include "core/device/kernels.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {
namespace {

double measure_matmul() {
  constexpr std::int64_t kSize = 512;
  const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
  const double flops = 2.0 * kSize * kSize * kSize;
  return flops / expected_seconds([&] { at::mm(a, b); });
}

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRound(20);

double thread_cpu_s() { return thread_cpu_time().count(); }
double clock_s() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

/// Calls of `work` per second of `now_s` on this thread, measured for kRound.
double calls_per_s(const std::function<void()>& work, double (*now_s)()) {
  const auto end = Clock::now() + kRound;
  const double begin_s = now_s();
  int calls = 0;
  do {
    work();
    ++calls;
  } while (Clock::now() < end);
  return calls / (now_s() - begin_s);
}

/// The mean rate when one thread per work runs at the same time.
double calls_per_s_together(const std::vector<std::function<void()>>& works) {
  std::vector<double> rates(works.size());
  std::barrier ready(static_cast<std::ptrdiff_t>(works.size()));
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < works.size(); ++i) {
      workers.emplace_back([&, i] {
        initialize_torch_thread();
        works[i]();  // a thread's first call is slow
        ready.arrive_and_wait();
        rates[i] = calls_per_s(works[i], clock_s);
      });
    }
  }
  return std::reduce(rates.begin(), rates.end()) / static_cast<double>(rates.size());
}

/// Seconds of the smallest copy, until the waiting thread continues.
double measure_copy(Bytes link_bytes_per_s) {
  constexpr Bytes kBytes = 64;
  const auto device = make_cpu_device("latency", kPage, {.link_bytes_per_s = link_bytes_per_s});
  const auto from = device->allocate_host(kBytes), to = device->allocate(kBytes);
  return expected_seconds([&] {
    device->host_to_device().copy_async(to->data(), from->data(), kBytes);
    device->host_to_device().record().wait();
  });
}

}  // namespace

double expected(std::vector<double> values) {
  values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4));
  std::ranges::sort(values);
  const double most = 3 * values[values.size() / 2];
  const auto end = std::ranges::upper_bound(values, most);
  return std::accumulate(values.begin(), end, 0.0) / static_cast<double>(end - values.begin());
}

double measure_contention(int threads, const std::function<std::function<void()>()>& make_work) {
  initialize_torch();
  const OneTorchThread one_thread;
  constexpr std::chrono::milliseconds kLeast(720);  // averages over other load
  std::vector<std::function<void()>> works;
  for (int i = 0; i < threads; ++i) works.push_back(make_work());
  works[0]();
  std::vector<double> alone_s, together_s;
  const auto round = [&] {
    alone_s.push_back(1 / calls_per_s(works[0], thread_cpu_s));
    together_s.push_back(1 / calls_per_s_together(works));
  };
  repeat_measurement(round, kLeast);
  return std::max(1.0, expected(together_s) / expected(alone_s));
}

std::function<void()> matrix_product() {
  constexpr std::int64_t kSize = 128;
  const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
  return [a, b] { at::mm(a, b); };
}

double measure_link_delay(Bytes link_bytes_per_s, int computing) {
  if (link_bytes_per_s == 0) return 0;
  std::vector<std::jthread> busy;
  for (int i = 0; i < computing; ++i) {
    busy.emplace_back([](const std::stop_token& stop) {
      initialize_torch_thread();
      for (const auto work = matrix_product(); !stop.stop_requested();) work();
    });
  }
  return std::max(0.0, measure_copy(link_bytes_per_s) - measure_copy(0));
}

double measure_load() {
  const double begin_s = clock_s(), cpu_s = thread_cpu_s();
  calls_per_s([] {}, clock_s);
  const double passed_s = clock_s() - begin_s;
  return std::max(0.0, 1 - (thread_cpu_s() - cpu_s) / passed_s);
}

double measure_updates() {
  constexpr std::size_t kElements = kBeyondCaches / sizeof(float), kGrain = std::size_t{1} << 16;
  std::vector<float> p(kElements, 1), m(kElements, 1), v(kElements, 1), g(kElements, 1);
  const kernels::AdamW hyper{.learning_rate = 1e-3f};
  const double seconds = expected_seconds([&] {
    tbb::parallel_for(std::size_t{0}, kElements / kGrain, [&](std::size_t grain) {
      const std::size_t i = grain * kGrain;
      kernels::adamw(&p[i], &m[i], &v[i], &g[i], kGrain, hyper);
    });
  });
  return static_cast<double>(kElements * sizeof(float)) / seconds;
}

HostRates measure_host_rates() {
  initialize_torch();
  constexpr std::size_t kElements = kBeyondCaches / 4 / sizeof(float);
  std::vector<float> p(kElements, 1), m(kElements, 1), v(kElements, 1), g(kElements, 1);
  const double bytes = kElements * sizeof(float);
  const kernels::AdamW hyper{.learning_rate = 1e-3f};
  return {.copy_bytes_per_s =
              bytes / expected_seconds([&] { std::memcpy(p.data(), g.data(), kElements * 4); }),
          .update_bytes_per_s = bytes / expected_seconds([&] {
                                  kernels::adamw(p.data(), m.data(), v.data(), g.data(), kElements,
                                                 hyper);
                                }),
          .reduce_bytes_per_s =
              bytes / expected_seconds([&] { kernels::squared_norm(g.data(), kElements); }),
          .matmul_flops_per_s = measure_matmul()};
}

}  // namespace spillway
