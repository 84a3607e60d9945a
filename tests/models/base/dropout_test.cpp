#include "models/base/dropout.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

namespace spillway {
namespace {

LayerContext context_of(std::uint32_t vn = 3, bool training = true) {
  return {.training = training, .random = {.seed = 11, .step = 5, .vn = vn, .stream = 32}};
}

/// The factor that dropout applies to each element.
at::Tensor mask_of(at::IntArrayRef shape, double p, const LayerContext& context,
                   std::uint32_t draw = 0) {
  return dropout(at::ones(shape), p, context, draw);
}

at::Tensor gradient(const at::Tensor& y, const at::Tensor& x, const at::Tensor& dy,
                    bool create_graph = false) {
  return torch::autograd::grad({y}, {x}, {dy}, /*retain_graph=*/true, create_graph)[0];
}

TEST(ModelDropout, KeepsTheConfiguredShare) {
  constexpr double kElements = 1 << 18;
  for (const double p : {0.125, 0.5, 0.75}) {
    const auto mask = mask_of({64, 4096}, p, context_of());
    const double sigma = std::sqrt(kElements * p * (1 - p));
    EXPECT_NEAR(mask.count_nonzero().item<double>(), kElements * (1 - p), 5 * sigma);
    const auto kept = mask.masked_select(mask != 0);
    EXPECT_TRUE(at::equal(kept, at::full_like(kept, static_cast<float>(1 / (1 - p)))));
  }
}

TEST(ModelDropout, DrawsTheSameMaskInBackward) {
  const auto x = at::linspace(-3, 3, 6000).view({10, 20, 30}).requires_grad_();
  const auto dy = at::linspace(1, 2, 6000).view({10, 20, 30});
  const auto y = dropout(x, 0.3, context_of());
  const auto mask = mask_of(x.sizes(), 0.3, context_of());
  EXPECT_TRUE(at::equal(y, x * mask));
  EXPECT_TRUE(at::equal(gradient(y, x, dy), dy * mask));
  EXPECT_FALSE(at::equal(gradient(y, x, dy), dy * mask_of(x.sizes(), 0.3, context_of(4))));
}

TEST(ModelDropout, AcceptsANonContiguousGradient) {
  const auto x = at::ones({30, 40}).requires_grad_();
  const auto dy = at::linspace(1, 2, 1200).view({40, 30}).t();
  const auto mask = mask_of({30, 40}, 0.5, context_of());
  EXPECT_TRUE(at::equal(gradient(dropout(x, 0.5, context_of()), x, dy), dy * mask));
}

TEST(ModelDropout, DrawsTheSameMaskForTheSecondDerivative) {
  const auto x = at::ones({1000}).requires_grad_(), dy = at::ones({1000}).requires_grad_();
  const auto dx = gradient(dropout(x, 0.4, context_of()), x, dy, /*create_graph=*/true);
  const auto mask = mask_of({1000}, 0.4, context_of());
  EXPECT_TRUE(at::equal(gradient(dx, dy, at::ones({1000})), mask));
}

TEST(ModelDropout, HasTheSameBitsInGradMode) {
  const auto x = at::linspace(-3, 3, 777).requires_grad_();
  const auto with = dropout(x, 0.3, context_of());
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(dropout(x, 0.3, context_of()), with));
}

TEST(ModelDropout, DependsOnlyOnThePositionOfAnElement) {
  const auto whole = mask_of({8, 33}, 0.5, context_of());
  const auto part = mask_of({3, 33}, 0.5, context_of());
  EXPECT_TRUE(at::equal(whole.narrow(0, 0, 3), part)) << "fewer samples behind it";
  EXPECT_TRUE(at::equal(whole.view(-1), mask_of({264}, 0.5, context_of()))) << "other shape";
  const auto strided = dropout(at::ones({33, 8}).t(), 0.5, context_of());
  EXPECT_TRUE(at::equal(strided, whole)) << "other strides";
}

TEST(ModelDropout, DependsOnEveryPartOfTheKey) {
  const auto base = mask_of({4096}, 0.5, context_of());
  EXPECT_TRUE(at::equal(mask_of({4096}, 0.5, context_of()), base));
  std::vector<LayerContext> others(4, context_of());
  others[0].random.seed += 1;
  others[1].random.step += 1;
  others[2].random.vn += 1;
  others[3].random.stream += 16;
  std::vector<at::Tensor> masks{mask_of({4096}, 0.5, context_of(), /*draw=*/1)};
  for (const auto& other : others) masks.push_back(mask_of({4096}, 0.5, other));
  for (const auto& mask : masks)
    EXPECT_NEAR((mask == base).sum().item<double>(), 2048, 6 * 32) << "independent masks";
}

TEST(ModelDropout, PutsTheDrawLastInTheStream) {
  auto shifted = context_of();
  shifted.random.stream += 9;
  EXPECT_TRUE(
      at::equal(mask_of({4096}, 0.5, context_of(), /*draw=*/9), mask_of({4096}, 0.5, shifted)));
}

TEST(ModelDropout, KeepsLargeKeysInBackward) {
  LayerContext context = context_of();
  context.random = {
      .seed = ~std::uint64_t{0} - 1, .step = ~0u - 2, .vn = ~0u - 3, .stream = ~0u - 4};
  const auto x = at::ones({1000}).requires_grad_();
  EXPECT_TRUE(at::equal(gradient(dropout(x, 0.5, context), x, at::ones({1000})),
                        mask_of({1000}, 0.5, context)));
}

TEST(ModelDropout, IsTheIdentityWhenOff) {
  const auto x = at::ones({100});
  EXPECT_TRUE(dropout(x, 0, context_of()).is_same(x));
  EXPECT_TRUE(dropout(x, 0.5, context_of(3, /*training=*/false)).is_same(x));
  EXPECT_FALSE(at::equal(dropout(x, 0.5, context_of()), x));
}

}  // namespace
}  // namespace spillway
