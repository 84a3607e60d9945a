#include "trainer/torch/portable_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string>

#include "spillway/error.h"

/// Kernels are chosen for a whole process, so each test has one of its own.
namespace spillway::testing {
namespace {

using ::testing::ExitedWithCode;

class PortableKernelsDeathTest : public ::testing::Test {
 protected:
  PortableKernelsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void multiply() { at::mm(at::rand({64, 64}), at::rand({64, 64})); }

[[noreturn]] void choose_late() {
  multiply();
  setenv("ONEDNN_MAX_CPU_ISA", "SSE41", /*overwrite=*/1);
  try {
    use_portable_kernels();
  } catch (const ConfigError& error) {
    std::cerr << error.field << ": " << error.problem << "\n";
    const bool as_before = !std::getenv("ATEN_CPU_CAPABILITY") && !std::getenv("MKL_CBWR") &&
                           std::string("SSE41") == std::getenv("ONEDNN_MAX_CPU_ISA");
    std::_Exit(as_before ? 0 : 2);
  }
  std::_Exit(1);
}

[[noreturn]] void choose_twice() {
  use_portable_kernels();
  multiply();
  use_portable_kernels();
  std::_Exit(uses_portable_kernels() ? 0 : 1);
}

TEST_F(PortableKernelsDeathTest, AreChosenBeforeLibTorchComputes) {
  EXPECT_FALSE(uses_portable_kernels());
  EXPECT_EXIT(choose_late(), ExitedWithCode(0),
              "numerics: is portable, but LibTorch has computed in this process before.*"
              "ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=AVX2");
  EXPECT_EXIT(choose_twice(), ExitedWithCode(0), "^$") << "no warnings";
}

/// Whether all variants of an operator give `expected`, but for the last bits.
void check(const char* what, const at::Tensor& expected, const at::Tensor& functional,
           const at::Tensor& in_place, const at::Tensor& out) {
  for (const at::Tensor& each : {functional, in_place, out}) {
    if (at::allclose(each, expected, 1e-6, 1e-7, /*equal_nan=*/true)) continue;
    std::cerr << what << ": " << each << "\n is not " << expected << "\n";
    std::_Exit(1);
  }
}

[[noreturn]] void compute_replaced() {
  use_portable_kernels();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor x = at::cat({at::tensor({0.0, -0.0, 1.0, -1.0, kInfinity, 1e-30, 2.25}),
                                  at::rand(100, at::kDouble)})
                             .to(type);
    const auto expected = [&](double (*function)(double)) {
      at::Tensor values = at::empty(x.sizes(), at::kDouble);
      const at::Tensor wide = x.to(at::kDouble);
      for (std::int64_t i = 0; i < x.numel(); ++i) values[i] = function(wide[i].item<double>());
      return values.to(type);
    };
    at::Tensor roots = at::empty({0}, x.options()), arcs = roots.clone(), powers = roots.clone();
    const at::Tensor root = expected([](double v) { return std::sqrt(v); });
    check("sqrt", root, at::sqrt(x), x.clone().sqrt_(), at::sqrt_out(roots, x));
    check("pow", root, at::pow(x, 0.5), x.clone().pow_(0.5), at::pow_out(powers, x, 0.5));
    check("atan", expected([](double v) { return std::atan(v); }), at::atan(x), x.clone().atan_(),
          at::atan_out(arcs, x));
    check("pow", x * x * x, at::pow(x, 3), x.clone().pow_(3), at::pow_out(powers, x, 3));
  }
  const at::Tensor leaf = at::full({3}, 4.0f).requires_grad_();
  const auto gradient = torch::autograd::grad({leaf.sqrt()}, {leaf}, {at::ones({3})}).front();
  std::_Exit(at::allclose(gradient, at::full({3}, 0.25f)) ? 0 : 1);
}

TEST_F(PortableKernelsDeathTest, ReplaceThoseThatApproximate) {
  EXPECT_EXIT(compute_replaced(), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace spillway::testing
