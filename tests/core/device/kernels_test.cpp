#include "core/device/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "tests/core/device/isa_levels.h"

namespace spillway::kernels {
namespace {

TEST(Isa, NeverExceedsTheCpu) {
  const Isa best = active_isa();
  EXPECT_EQ(limit_isa(Isa::baseline), Isa::baseline);
  EXPECT_EQ(active_isa(), Isa::baseline);
  EXPECT_EQ(limit_isa(Isa::avx512), best);
  EXPECT_EQ(active_isa(), best);
}

TEST(Add, AddsElementwiseOnEveryLevel) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (const std::size_t n : awkward_sizes()) {
      auto sum = random_values(n + 1, 1);
      const auto term = random_values(n, 2);
      auto reference = sum;
      for (std::size_t i = 0; i < n; ++i) reference[i] = reference[i] + term[i];
      add(sum.data(), term.data(), n);
      ASSERT_EQ(bits(sum), bits(reference)) << n;
    }
  }
}

/// The contract of squared_norm, written literally.
double lane_norm(const std::vector<float>& x) {
  double total = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += kNormChunk) {
    double lane[8] = {};
    for (std::size_t i = begin; i < std::min(begin + kNormChunk, x.size()); ++i) {
      const double value = static_cast<double>(x[i]);
      const double square = value * value;
      lane[(i - begin) % 8] += square;
    }
    const double low = (lane[0] + lane[1]) + (lane[2] + lane[3]);
    const double high = (lane[4] + lane[5]) + (lane[6] + lane[7]);
    total += low + high;
  }
  return total;
}

double left_to_right_norm(const std::vector<float>& x) {
  double total = 0;
  for (const float value : x) total += static_cast<double>(value) * static_cast<double>(value);
  return total;
}

TEST(SquaredNorm, SumsInTheFixedOrderOnEveryLevel) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (const std::size_t n : awkward_sizes()) {
      const auto x = random_values(n, 3);
      ASSERT_EQ(std::bit_cast<std::uint64_t>(squared_norm(x.data(), n)),
                std::bit_cast<std::uint64_t>(lane_norm(x)))
          << n;
    }
  }
}

TEST(SquaredNorm, DependsOnTheOrder) {
  const auto x = random_values(12345, 3);
  EXPECT_NE(squared_norm(x.data(), x.size()), left_to_right_norm(x));
  EXPECT_NEAR(squared_norm(x.data(), x.size()) / left_to_right_norm(x), 1, 1e-12);
}

TEST(SquaredNorm, SumsBeyondTheRangeOfFloat) {
  const std::vector<float> x(100, 1e30f);
  EXPECT_NEAR(squared_norm(x.data(), x.size()) / 1e62, 1, 1e-6);
}

struct Optimized {
  std::vector<float> p, m, v;
  const std::vector<float> g;
};

Optimized start(std::size_t n) {
  Optimized s{random_values(n, 4), random_values(n, 5, 0.1), random_values(n, 6),
              random_values(n, 7)};
  for (float& x : s.v) x = x * x * 0.01f;
  return s;
}

AdamW hyper() {
  AdamW h;
  h.learning_rate = 3e-3f;
  h.weight_decay = 0.1f;
  h.bias_correction1 = static_cast<float>(1 - std::pow(0.9, 5));
  h.bias_correction2_sqrt = static_cast<float>(std::sqrt(1 - std::pow(0.999, 5)));
  h.gradient_scale = 0.37f;
  return h;
}

void step(Optimized& s, const AdamW& h, std::size_t begin, std::size_t end) {
  adamw(s.p.data() + begin, s.m.data() + begin, s.v.data() + begin, s.g.data() + begin, end - begin,
        h);
}

/// The contract of adamw, one rounding per line.
void reference_step(Optimized& s, const AdamW& h) {
  const float decay = 1 - h.learning_rate * h.weight_decay;
  const float rate = h.learning_rate / h.bias_correction1;
  const float rest1 = 1 - h.beta1, rest2 = 1 - h.beta2;
  for (std::size_t i = 0; i < s.p.size(); ++i) {
    const float g = s.g[i] * h.gradient_scale;
    const float m_old = h.beta1 * s.m[i], m_new = rest1 * g;
    s.m[i] = m_old + m_new;
    const float v_old = h.beta2 * s.v[i], v_half = rest2 * g, v_new = v_half * g;
    s.v[i] = v_old + v_new;
    const float root = std::sqrt(s.v[i]), scaled = root / h.bias_correction2_sqrt;
    const float denominator = scaled + h.epsilon, numerator = rate * s.m[i];
    const float kept = s.p[i] * decay, change = numerator / denominator;
    s.p[i] = kept - change;
  }
}

void expect_same_bits(const Optimized& a, const Optimized& b) {
  EXPECT_EQ(bits(a.p), bits(b.p));
  EXPECT_EQ(bits(a.m), bits(b.m));
  EXPECT_EQ(bits(a.v), bits(b.v));
}

TEST(AdamW, FindsTheMinimumOfAParabola) {
  float p = 5, m = 0, v = 0;
  for (int t = 1; t <= 2000; ++t) {
    AdamW h;
    h.learning_rate = 0.05f;
    h.bias_correction1 = static_cast<float>(1 - std::pow(0.9, t));
    h.bias_correction2_sqrt = static_cast<float>(std::sqrt(1 - std::pow(0.999, t)));
    const float g = 2 * (p - 1.5f);
    adamw(&p, &m, &v, &g, 1, h);
  }
  EXPECT_NEAR(p, 1.5f, 1e-3f);
}

/// The contract of sgd, one rounding per line.
void reference_step(Optimized& s, const Sgd& h) {
  for (std::size_t i = 0; i < s.p.size(); ++i) {
    const float scaled = s.g[i] * h.gradient_scale, decay = h.weight_decay * s.p[i];
    const float gradient = scaled + decay, kept = h.momentum * s.m[i];
    s.m[i] = kept + gradient;
    const float change = h.learning_rate * s.m[i];
    s.p[i] = s.p[i] - change;
  }
}

constexpr Sgd kSgd{
    .learning_rate = 3e-2f, .momentum = 0.9f, .weight_decay = 0.1f, .gradient_scale = 0.37f};

void step(Optimized& s, const Sgd& h, std::size_t begin, std::size_t end) {
  sgd(s.p.data() + begin, s.m.data() + begin, s.g.data() + begin, end - begin, h);
}

template <typename Hyper>
void expect_documented_rounding(const Hyper& h) {
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    for (const std::size_t n : awkward_sizes()) {
      auto one = start(n), other = start(n);
      for (int t = 0; t < 3; ++t) {
        step(one, h, 0, n);
        reference_step(other, h);
      }
      expect_same_bits(one, other);
    }
  }
}

template <typename Hyper>
void expect_same_bits_for_a_split_range(const Hyper& h) {
  constexpr std::size_t kN = 301;
  for (const Isa isa : isa_levels()) {
    const IsaLimit limit(isa);
    auto whole = start(kN);
    step(whole, h, 0, kN);
    for (std::size_t cut = 0; cut <= kN; cut += 7) {
      auto cut_in_two = start(kN);
      step(cut_in_two, h, 0, cut);
      step(cut_in_two, h, cut, kN);
      expect_same_bits(cut_in_two, whole);
    }
  }
}

/// Each of `others` differs from `h` in one parameter.
template <typename Hyper>
void expect_other_weights(const Hyper& h, const std::vector<Hyper>& others) {
  auto base = start(100);
  step(base, h, 0, 100);
  for (const Hyper& other : others) {
    auto state = start(100);
    step(state, other, 0, 100);
    EXPECT_NE(state.p, base.p);
  }
}

TEST(AdamW, RoundsAsDocumentedOnEveryLevel) { expect_documented_rounding(hyper()); }
TEST(Sgd, RoundsAsDocumentedOnEveryLevel) { expect_documented_rounding(kSgd); }

TEST(AdamW, GivesTheSameBitsForASplitRange) { expect_same_bits_for_a_split_range(hyper()); }
TEST(Sgd, GivesTheSameBitsForASplitRange) { expect_same_bits_for_a_split_range(kSgd); }

TEST(AdamW, DependsOnEveryHyperParameter) {
  std::vector<AdamW> others(8, hyper());
  others[0].learning_rate *= 1.01f;
  others[1].beta1 = 0.8f;
  others[2].beta2 = 0.99f;
  others[3].epsilon = 1e-3f;
  others[4].weight_decay = 0;
  others[5].bias_correction1 = 1;
  others[6].bias_correction2_sqrt = 1;
  others[7].gradient_scale = 1;
  expect_other_weights(hyper(), others);
}

TEST(Sgd, DependsOnEveryHyperParameter) {
  std::vector<Sgd> others(4, kSgd);
  others[0].learning_rate *= 1.01f;
  others[1].momentum = 0.8f;
  others[2].weight_decay = 0;
  others[3].gradient_scale = 1;
  expect_other_weights(kSgd, others);
}

}  // namespace
}  // namespace spillway::kernels
