#include "trainer/torch/kernel_flags.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <fmt/format.h>

namespace spillway {

KernelFlags kernel_flags() {
  const at::Context& context = at::globalContext();
  const auto precision_of = [&](at::Float32Op op) {
    return at::precision2str(context.float32Precision(at::Float32Backend::MKLDNN, op));
  };
  return {
      {"torch.are_deterministic_algorithms_enabled()",
       fmt::to_string(context.deterministicAlgorithms())},
      {"torch.backends.cuda.flash_sdp_enabled()", fmt::to_string(context.userEnabledFlashSDP())},
      {"torch.backends.cuda.math_sdp_enabled()", fmt::to_string(context.userEnabledMathSDP())},
      {"torch.backends.cuda.mem_efficient_sdp_enabled()",
       fmt::to_string(context.userEnabledMemEfficientSDP())},
      {"torch.backends.mkldnn.conv.fp32_precision", precision_of(at::Float32Op::CONV)},
      {"torch.backends.mkldnn.deterministic", fmt::to_string(context.deterministicMkldnn())},
      {"torch.backends.mkldnn.enabled", fmt::to_string(context.userEnabledMkldnn())},
      {"torch.backends.mkldnn.matmul.fp32_precision", precision_of(at::Float32Op::MATMUL)},
      {"torch.get_default_dtype()", std::string(c10::get_default_dtype().name())},
  };
}

std::string difference(const KernelFlags& then, const KernelFlags& now) {
  for (const auto& [name, value] : then) {
    if (now.at(name) == value) continue;
    return fmt::format("{} is {} now, but was {}", name, now.at(name), value);
  }
  return "";
}

}  // namespace spillway
