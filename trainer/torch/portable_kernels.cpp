#include "trainer/torch/portable_kernels.h"

#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/atan_cpu_dispatch.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow_cpu_dispatch.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sqrt_cpu_dispatch.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/base/mutex.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// Of MKL alone, which computes in f32 and f64.
bool is_of_mkl(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
}

at::Tensor portable_sqrt(const at::Tensor& x) {
  return is_of_mkl(x) ? at::reciprocal(at::rsqrt(x)) : at::cpu::sqrt(x);
}

at::Tensor portable_atan(const at::Tensor& x) {
  return is_of_mkl(x) ? at::atan2(x, at::ones({}, x.options())) : at::cpu::atan(x);
}

at::Tensor portable_pow(const at::Tensor& x, const at::Scalar& exponent) {
  return is_of_mkl(x) && exponent.equal(0.5) ? portable_sqrt(x) : at::cpu::pow(x, exponent);
}

/// The variants of an operator that write into their argument, and into `out`.
template <auto compute, typename... Exponent>
at::Tensor& in_place(at::Tensor& x, const Exponent&... exponent) {
  return x.copy_(compute(x, exponent...));
}
template <auto compute, typename... Exponent>
at::Tensor& into(const at::Tensor& x, const Exponent&... exponent, at::Tensor& out) {
  at::native::resize_output(out, x.sizes());
  return out.copy_(compute(x, exponent...));
}

/// LibTorch warns of every kernel that is replaced.
class NoWarnings : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void replace_kernels() {
  NoWarnings none;
  const c10::WarningUtils::WarningHandlerGuard guard(&none);
  // It lives as long as the process.
  auto& kernels =
      *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  kernels.impl("sqrt", &portable_sqrt);
  kernels.impl("sqrt_", &in_place<portable_sqrt>);
  kernels.impl("sqrt.out", &into<portable_sqrt>);
  kernels.impl("atan", &portable_atan);
  kernels.impl("atan_", &in_place<portable_atan>);
  kernels.impl("atan.out", &into<portable_atan>);
  kernels.impl("pow.Tensor_Scalar", &portable_pow);
  kernels.impl("pow_.Scalar", &in_place<portable_pow, at::Scalar>);
  kernels.impl("pow.Tensor_Scalar_out", &into<portable_pow, at::Scalar>);
}

struct Variable {
  const char* name;
  const char* value;
};
/// The libraries read them before they first compute.
constexpr std::array kVariables{Variable{"ATEN_CPU_CAPABILITY", "avx2"},
                                Variable{"MKL_CBWR", "COMPATIBLE"},
                                Variable{"ONEDNN_MAX_CPU_ISA", "AVX2"}};

/// Sets the variables. Its destructor restores what they were, unless they are to be kept.
class Assignments {
 public:
  Assignments() {
    for (std::size_t v = 0; v < kVariables.size(); ++v) {
      if (const char* value = std::getenv(kVariables[v].name)) before_[v] = value;
      setenv(kVariables[v].name, kVariables[v].value, /*overwrite=*/1);
    }
  }
  Assignments(const Assignments&) = delete;
  Assignments& operator=(const Assignments&) = delete;
  ~Assignments() {
    if (are_kept_) return;
    for (std::size_t v = 0; v < kVariables.size(); ++v) {
      const char* name = kVariables[v].name;
      before_[v] ? setenv(name, before_[v]->c_str(), /*overwrite=*/1) : unsetenv(name);
    }
  }
  void keep() { are_kept_ = true; }
  /// " NAME=value" of each.
  static std::string text() {
    std::string text;
    for (const auto& [name, value] : kVariables) text += fmt::format(" {}={}", name, value);
    return text;
  }

 private:
  std::array<std::optional<std::string>, kVariables.size()> before_;
  bool are_kept_ = false;
};

bool has_instructions() {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto has = [&](const char* name) {
    const auto found = capabilities.find(name);
    return found != capabilities.end() && found->second.toBool();
  };
  return has("avx2") && has("fma3");
}

/// Whether MKL computes in the mode COMPATIBLE, or there is no MKL.
bool has_compatible_mkl() {
  constexpr int kBranch = 1, kCompatible = 3;  // MKL_CBWR_BRANCH, MKL_CBWR_COMPATIBLE
  auto* const get = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "mkl_serv_cbwr_get"));
  return get == nullptr || get(kBranch) == kCompatible;
}

void choose_portable() {
  if (!has_instructions()) {
    throw ConfigError("numerics", 0,
                      "is portable, which needs an x86-64 processor with AVX2 and FMA; use native");
  }
  Assignments assignments;
  if (at::get_cpu_capability() != "AVX2" || !has_compatible_mkl()) {
    throw ConfigError(
        "numerics", 0,
        "is portable, but LibTorch has computed in this process before and keeps the kernels that "
        "it chose; create the session before LibTorch computes, or start the program with" +
            Assignments::text());
  }
  replace_kernels();
  assignments.keep();
}

struct Chosen {
  Mutex mutex;
  bool is_portable SPILLWAY_GUARDED_BY(mutex) = false;
};

Chosen& chosen() {
  static Chosen chosen;
  return chosen;
}

}  // namespace

void use_portable_kernels() {
  const MutexLock lock(chosen().mutex);
  if (!chosen().is_portable) choose_portable();
  chosen().is_portable = true;
}

bool uses_portable_kernels() {
  const MutexLock lock(chosen().mutex);
  return chosen().is_portable;
}

}  // namespace spillway
