#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

/// What a configuration can choose from: enums, each with one list of names.
namespace spillway {

/// Names of the values of `Enum`, in their order; null for an enum without names.
template <typename Enum>
inline constexpr std::nullptr_t kNames = nullptr;

/// An enum with a list of names.
template <typename Enum>
concept Named = std::is_enum_v<Enum> && requires {
  kNames<Enum>.size();
};

/// The name of a value.
template <Named Enum>
constexpr const char* to_string(Enum value) {
  return kNames<Enum>.at(static_cast<std::size_t>(value));
}

/// The value of a name; nothing for an unknown one.
template <Named Enum>
std::optional<Enum> value_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames<Enum>.size(); ++i) {
    if (name == kNames<Enum>[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

/// What computes.
enum class DeviceKind : std::uint8_t { cpu, cuda };
template <>
inline constexpr std::array kNames<DeviceKind>{"cpu", "cuda"};  ///< names

/// The kernels with which LibTorch computes on CPUs.
enum class NumericsKind : std::uint8_t {
  native,   ///< the fastest of the processor
  portable  ///< those that give the same bits on every x86-64 processor with AVX2 and FMA
};
template <>
inline constexpr std::array kNames<NumericsKind>{"native", "portable"};  ///< names

/// What carries the bytes of hosts that train together, as the backends of torch.distributed.
enum class BackendKind : std::uint8_t { gloo, nccl };
template <>
inline constexpr std::array kNames<BackendKind>{"gloo", "nccl"};  ///< names

/// Where the moments of the optimizer are, if several hosts train together; with bf16 also the fp32
/// weights.
enum class HostStateKind : std::uint8_t {
  replicated,  ///< all on every host
  sharded,     ///< each on the host that updates these weights, as in stage 1 of ZeRO
  shadowed     ///< each on two hosts, which make the same updates
};
template <>
inline constexpr std::array kNames<HostStateKind>{"replicated", "sharded", "shadowed"};  ///< names

/// How a CPU device that imitates a failure fails.
enum class FaultKind : std::uint8_t {
  none,   ///< not at all
  fail,   ///< the device is lost
  hang,   ///< its op does not end until the device is abandoned
  shrink  ///< its budget halves
};
template <>
inline constexpr std::array kNames<FaultKind>{"none", "fail", "hang", "shrink"};  ///< names

/// Which ready unit runs next on a device, see scheduler/engine/policy.h.
enum class PolicyKind : std::uint8_t { lrtf, srtf, fifo, round_robin, random };
template <>
inline constexpr std::array kNames<PolicyKind>{"lrtf", "srtf", "fifo", "round_robin",
                                               "random"};  ///< names

/// Who gets how many devices, see scheduler/elastic/allocator.h; none: what each trial asks for.
enum class SharingKind : std::uint8_t { none, priority, wfs, fill };
template <>
inline constexpr std::array kNames<SharingKind>{"none", "priority", "wfs", "fill"};  ///< names

/// How an autoscaler decides, see scheduler/elastic/heuristic.h.
enum class RuleKind : std::uint8_t { throughput, linear, stepped, straggler };
template <>
inline constexpr std::array kNames<RuleKind>{"throughput", "linear", "stepped",
                                             "straggler"};  ///< names

/// Which trials of a sweep end early, see scheduler/elastic/early_stopping.h.
enum class EarlyTerminateKind : std::uint8_t {
  hyperband,  ///< successive halving, in one bracket or several
  asha,       ///< successive halving that does not wait for trials that begin later
  median,     ///< a trial that is worse than the median of the others
  pbt         ///< none: the worst take over the state of the best, with another learning rate
};
template <>
inline constexpr std::array kNames<EarlyTerminateKind>{"hyperband", "asha", "median",
                                                       "pbt"};  ///< names

/// The metric by which trials are compared.
enum class MetricKind : std::uint8_t {
  eval_loss,   ///< loss on the evaluation data
  final_loss,  ///< training loss
  accuracy,    ///< on the evaluation data: share of classes that are predicted correctly
  perplexity   ///< on the evaluation data: e to the power of the loss
};
template <>
inline constexpr std::array kNames<MetricKind>{"eval_loss", "final_loss", "accuracy",
                                               "perplexity"};  ///< names

/// Which value of a metric is the best.
enum class MetricGoal : std::uint8_t { minimize, maximize };
template <>
inline constexpr std::array kNames<MetricGoal>{"minimize", "maximize"};  ///< names

/// Order of the units of a step.
enum class OrderChoice : std::uint8_t {
  automatic,    ///< by the budget and the hosts
  shard_major,  ///< load a shard once and run all virtual nodes through it
  vn_major      ///< virtual node by virtual node, for models that fit
};
template <>
inline constexpr std::array kNames<OrderChoice>{"auto", "shard_major", "vn_major"};  ///< names

/// Type of computed values.
enum class FloatType : std::uint8_t { fp32, bf16 };
template <>
inline constexpr std::array kNames<FloatType>{"fp32", "bf16"};  ///< names

/// Rule of an update.
enum class OptimizerKind : std::uint8_t { adamw, sgd };
template <>
inline constexpr std::array kNames<OptimizerKind>{"adamw", "sgd"};  ///< names

/// Learning rate by step, after the warm-up.
enum class LrSchedulerType : std::uint8_t { cosine, linear, constant, warmup_stable_decay };
template <>
inline constexpr std::array kNames<LrSchedulerType>{"cosine", "linear", "constant",
                                                    "warmup_stable_decay"};  ///< names
/// Whether the schedule falls to 0 over all steps, so that extending a trial needs LrExtension.
constexpr bool spans_all_steps(LrSchedulerType type) {
  return type == LrSchedulerType::cosine || type == LrSchedulerType::linear;
}

/// Learning rate of the steps that extend a trial whose schedule spans all steps.
enum class LrExtension : std::uint8_t {
  none,     ///< such a trial is not extended
  restart,  ///< a new schedule over the additional steps
  stretch   ///< the schedule of the new length
};
template <>
inline constexpr std::array kNames<LrExtension>{"none", "restart", "stretch"};  ///< names

/// Activation function of an MLP.
enum class Activation : std::uint8_t { relu, gelu, tanh };
template <>
inline constexpr std::array kNames<Activation>{"relu", "gelu", "tanh"};  ///< names

/// Type of the numbers in files of tokens, little-endian.
enum class TokenType : std::uint8_t { uint16, uint32 };
template <>
inline constexpr std::array kNames<TokenType>{"uint16", "uint32"};  ///< names

/// Random change of training pictures.
enum class Augmentation : std::uint8_t {
  none,  ///< none
  shift  ///< by up to a pixel in each direction, see shift_pictures()
};
template <>
inline constexpr std::array kNames<Augmentation>{"none", "shift"};  ///< names

}  // namespace spillway
