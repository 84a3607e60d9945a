#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/device/kernels.h"

/// One core, per instruction set: 64 KiB of floats (in cache) and 16 MiB (mostly not).
namespace spillway::kernels {
namespace {

std::vector<float> values(std::size_t n) {
  std::vector<float> x(n);
  fill_normal(x.data(), n, 1, RandomKey{.seed = 1});
  return x;
}

/// Limits the dispatch to the case's level while it runs; skips levels that this CPU lacks.
bool enter_level(benchmark::State& state, Isa isa) {
  if (limit_isa(isa) == isa) return true;
  state.SkipWithError("this CPU lacks the instruction set");
  return false;
}

void report(benchmark::State& state, std::size_t n, std::size_t bytes_per_element) {
  const auto elements = state.iterations() * static_cast<std::int64_t>(n);
  state.SetItemsProcessed(elements);
  state.SetBytesProcessed(elements * static_cast<std::int64_t>(bytes_per_element));
  limit_isa(Isa::avx512);
}

void BM_Dropout(benchmark::State& state, Isa isa) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto x = values(n);
  if (!enter_level(state, isa)) return;
  for (auto _ : state) {
    dropout(x.data(), x.data(), n, 0.1f, RandomKey{.seed = 1});
    benchmark::ClobberMemory();
  }
  report(state, n, 2 * sizeof(float));
}

void BM_Add(benchmark::State& state, Isa isa) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto sum = values(n);
  const auto term = values(n);
  if (!enter_level(state, isa)) return;
  for (auto _ : state) {
    add(sum.data(), term.data(), n);
    benchmark::ClobberMemory();
  }
  report(state, n, 3 * sizeof(float));
}

void BM_SquaredNorm(benchmark::State& state, Isa isa) {
  const auto n = static_cast<std::size_t>(state.range(0));
  const auto x = values(n);
  if (!enter_level(state, isa)) return;
  for (auto _ : state) benchmark::DoNotOptimize(squared_norm(x.data(), n));
  report(state, n, sizeof(float));
}

void BM_AdamW(benchmark::State& state, Isa isa) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto p = values(n), m = values(n);
  std::vector<float> v(n, 1.0f);
  const auto g = values(n);
  if (!enter_level(state, isa)) return;
  const AdamW hyper{.learning_rate = 1e-3f, .weight_decay = 0.01f};
  for (auto _ : state) {
    adamw(p.data(), m.data(), v.data(), g.data(), n, hyper);
    benchmark::ClobberMemory();
  }
  report(state, n, 7 * sizeof(float));
}

void BM_Sgd(benchmark::State& state, Isa isa) {
  const auto n = static_cast<std::size_t>(state.range(0));
  auto p = values(n), m = values(n);
  const auto g = values(n);
  if (!enter_level(state, isa)) return;
  const Sgd hyper{.learning_rate = 1e-3f, .weight_decay = 0.01f};
  for (auto _ : state) {
    sgd(p.data(), m.data(), g.data(), n, hyper);
    benchmark::ClobberMemory();
  }
  report(state, n, 5 * sizeof(float));
}

void BM_FillNormal(benchmark::State& state) {
  std::vector<float> x(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    fill_normal(x.data(), x.size(), 0.02, RandomKey{.seed = 1});
    benchmark::ClobberMemory();
  }
  report(state, x.size(), sizeof(float));
}

#define SPILLWAY_BENCH_LEVELS(name)                                             \
  BENCHMARK_CAPTURE(name, baseline, Isa::baseline)->Arg(1 << 14)->Arg(1 << 22); \
  BENCHMARK_CAPTURE(name, avx2, Isa::avx2)->Arg(1 << 14)->Arg(1 << 22);         \
  BENCHMARK_CAPTURE(name, avx512, Isa::avx512)->Arg(1 << 14)->Arg(1 << 22)

SPILLWAY_BENCH_LEVELS(BM_Dropout);
SPILLWAY_BENCH_LEVELS(BM_Add);
SPILLWAY_BENCH_LEVELS(BM_SquaredNorm);
SPILLWAY_BENCH_LEVELS(BM_AdamW);
SPILLWAY_BENCH_LEVELS(BM_Sgd);
BENCHMARK(BM_FillNormal)->Arg(1 << 14);

}  // namespace
}  // namespace spillway::kernels
