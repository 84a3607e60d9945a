#include "trainer/torch/kernel_flags.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <fmt/format.h>

namespace spillway {

KernelFlags kernel_flags(bool on_gpus) {
  const at::Context& context = at::globalContext();
  const auto precision_of = [&](at::Float32Backend backend, at::Float32Op op) {
    return at::precision2str(context.float32Precision(backend, op));
  };
  const auto number = [](auto value) { return fmt::to_string(static_cast<int>(value)); };
  using enum at::Float32Backend;
  using enum at::Float32Op;
  KernelFlags flags{
      {"torch.backends.cuda.flash_sdp_enabled()", fmt::to_string(context.userEnabledFlashSDP())},
      {"torch.backends.cuda.math_sdp_enabled()", fmt::to_string(context.userEnabledMathSDP())},
      {"torch.backends.cuda.mem_efficient_sdp_enabled()",
       fmt::to_string(context.userEnabledMemEfficientSDP())},
      {"torch.backends.mkldnn.conv.fp32_precision", precision_of(MKLDNN, CONV)},
      {"torch.backends.mkldnn.deterministic", fmt::to_string(context.deterministicMkldnn())},
      {"torch.backends.mkldnn.enabled", fmt::to_string(context.userEnabledMkldnn())},
      {"torch.backends.mkldnn.matmul.fp32_precision", precision_of(MKLDNN, MATMUL)},
      {"torch.backends.nnpack.enabled", fmt::to_string(context.userEnabledNNPACK())},
      {"torch.get_default_dtype()", std::string(c10::get_default_dtype().name())},
  };
  if (!on_gpus) return flags;
  flags.insert({
      {"torch.are_deterministic_algorithms_enabled()",
       fmt::to_string(context.deterministicAlgorithms())},
      {"torch.backends.cuda.cudnn_sdp_enabled()", fmt::to_string(context.userEnabledCuDNNSDP())},
      {"torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
       number(context.allowBF16ReductionCuBLAS())},
      {"torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
       number(context.allowFP16ReductionCuBLAS())},
      {"torch.backends.cuda.matmul.fp32_precision", precision_of(CUDA, MATMUL)},
      {"torch.backends.cudnn.benchmark", fmt::to_string(context.benchmarkCuDNN())},
      {"torch.backends.cudnn.conv.fp32_precision", precision_of(CUDA, CONV)},
      {"torch.backends.cudnn.deterministic", fmt::to_string(context.deterministicCuDNN())},
      {"torch.backends.cudnn.enabled", fmt::to_string(context.userEnabledCuDNN())},
  });
  return flags;
}

std::string difference(const KernelFlags& then, const KernelFlags& now) {
  for (const auto& [name, value] : then) {
    if (now.at(name) == value) continue;
    return fmt::format("{} is {} now, but was {}", name, now.at(name), value);
  }
  return "";
}

}  // namespace spillway
