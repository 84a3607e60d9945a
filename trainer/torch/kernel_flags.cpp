#include "trainer/torch/kernel_flags.h"

#include <ATen/Context.h>
#include <c10/core/DefaultDtype.h>
#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "core/base/mutex.h"

namespace spillway {
namespace {

using enum at::Float32Backend;
using enum at::Float32Op;

/// The flags that choose kernels of GPUs. The defaults give the same bits in every run.
struct GpuChoices {
  bool deterministic = true, only_warn = false, fill_uninitialized = false;
  bool cudnn_deterministic = true, cudnn_benchmark = false, cudnn_attention = false;
  at::CuBLASReductionOption fp16_sums{}, bf16_sums{};
  at::Float32Precision matmul{}, conv{}, rnn{}, cpu_matmul{};
  bool operator==(const GpuChoices&) const = default;
};

GpuChoices choices_now() {
  const at::Context& context = at::globalContext();
  return {.deterministic = context.deterministicAlgorithms(),
          .only_warn = context.deterministicAlgorithmsWarnOnly(),
          .fill_uninitialized = context.deterministicFillUninitializedMemory(),
          .cudnn_deterministic = context.deterministicCuDNN(),
          .cudnn_benchmark = context.benchmarkCuDNN(),
          .cudnn_attention = context.userEnabledCuDNNSDP(),
          .fp16_sums = context.allowFP16ReductionCuBLAS(),
          .bf16_sums = context.allowBF16ReductionCuBLAS(),
          .matmul = context.float32Precision(CUDA, MATMUL),
          .conv = context.float32Precision(CUDA, CONV),
          .rnn = context.float32Precision(CUDA, RNN),
          .cpu_matmul = context.float32Precision(MKLDNN, MATMUL)};
}

void set_choices(const GpuChoices& choices) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(choices.deterministic, choices.only_warn);
  context.setDeterministicFillUninitializedMemory(choices.fill_uninitialized);
  context.setDeterministicCuDNN(choices.cudnn_deterministic);
  context.setBenchmarkCuDNN(choices.cudnn_benchmark);
  context.setSDPUseCuDNN(choices.cudnn_attention);
  const auto sums = [](at::CuBLASReductionOption option) {
    using enum at::CuBLASReductionOption;
    return std::pair(option == AllowReducedPrecisionWithSplitK,
                     option != DisallowReducedPrecisionDisallowSplitK);
  };
  std::apply([&](bool reduced, bool split) { context.setAllowFP16ReductionCuBLAS(reduced, split); },
             sums(choices.fp16_sums));
  std::apply([&](bool reduced, bool split) { context.setAllowBF16ReductionCuBLAS(reduced, split); },
             sums(choices.bf16_sums));
  // The older setters first: LibTorch's own reads fail where they and the newer ones disagree.
  context.setAllowTF32CuBLAS(choices.matmul == at::Float32Precision::TF32);
  context.setAllowTF32CuDNN(choices.conv == at::Float32Precision::TF32);
  context.setFloat32Precision(CUDA, MATMUL, choices.matmul);
  context.setFloat32Precision(CUDA, CONV, choices.conv);
  context.setFloat32Precision(CUDA, RNN, choices.rnn);
  context.setFloat32Precision(MKLDNN, MATMUL, choices.cpu_matmul);
}

/// Those of a process whose first session with a GPU begins.
GpuChoices reproducible(const GpuChoices& before) {
  constexpr auto kExact = at::CuBLASReductionOption::DisallowReducedPrecisionAllowSplitK;
  constexpr auto kFp32 = at::Float32Precision::IEEE;
  return {.fp16_sums = kExact,
          .bf16_sums = kExact,
          .matmul = kFp32,
          .conv = kFp32,
          .rnn = kFp32,
          .cpu_matmul = before.cpu_matmul};
}

struct GpuFlags {
  Mutex mutex;
  int num_users SPILLWAY_GUARDED_BY(mutex) = 0;
  GpuChoices of_process SPILLWAY_GUARDED_BY(mutex);
  GpuChoices ours SPILLWAY_GUARDED_BY(mutex);  ///< as LibTorch then reads them
};

GpuFlags& gpu_flags() {
  static GpuFlags flags;
  return flags;
}

}  // namespace

ReproducibleGpuKernels::ReproducibleGpuKernels() {
  GpuFlags& flags = gpu_flags();
  const MutexLock lock(flags.mutex);
  if (flags.num_users++ > 0) return;
  flags.of_process = choices_now();
  set_choices(reproducible(flags.of_process));
  flags.ours = choices_now();
}

ReproducibleGpuKernels::~ReproducibleGpuKernels() {
  GpuFlags& flags = gpu_flags();
  const MutexLock lock(flags.mutex);
  if (--flags.num_users == 0 && choices_now() == flags.ours) set_choices(flags.of_process);
}

KernelFlags kernel_flags(bool on_gpus) {
  const at::Context& context = at::globalContext();
  const auto precision_of = [&](at::Float32Backend backend, at::Float32Op op) {
    return at::precision2str(context.float32Precision(backend, op));
  };
  const auto number = [](auto value) { return fmt::to_string(static_cast<int>(value)); };
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
