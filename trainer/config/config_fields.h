#pragma once

#include "core/base/field.h"
#include "spillway/session_config.h"
#include "spillway/trial_config.h"

/// The fields of trials and sessions, see core/base/field.h. `Config` is the struct, constant or
/// not.
namespace spillway {

inline constexpr IntRange kSteps{1, 1'000'000'000'000};
inline constexpr IntRange kStepsOrNone{0, kSteps.max};
inline constexpr IntRange kBrackets{1, 40, "all", 0};
inline constexpr NumberRange kRate{.min = 0, .max = 1e6, .below_max = true};
inline constexpr NumberRange kMaxGradNorm{.min = 0, .max = 1e30, .below_max = true};
inline constexpr NumberRange kActivationShare{.min = 0, .max = kMostActivations};

template <typename Config, typename Visitor>
void visit_imitation(Config& imitation, Visitor& v) {
  v.field("link", imitation.link_bytes_per_s, RateRange{1_MiB},
          "Rate of copies in each direction, such as `2GB/s`; 0: as fast as memory. A copy between "
          "two devices without a link (`links`) uses the rate of the receiver.");
  v.field("slowdown", imitation.slowdown, NumberRange{.min = 1, .max = 1000},
          "Factor by which operations take longer.");
  v.section("fault", [&](auto& fault) {
    fault.field("kind", imitation.fault.kind, kAny,
                "The device fails (`fail`), stops answering (`hang`), or loses half of its memory "
                "(`shrink`).");
    fault.field("after_ops", imitation.fault.after_ops, kAny,
                "Number of operations that start before the fault.");
  });
}

template <typename Config, typename Visitor>
void visit_device(Config& device, Visitor& v) {
  v.field("kind", device.kind, kAny,
          "All devices of a run are of one kind, see [Use a GPU](guide/gpu.md).");
  v.require_key("memory", "write the most bytes that the device may hold, such as 1GiB");
  v.field("memory", device.memory, SizeRange{kPage, Bytes{1} << 44},
          "Memory budget of the device, including activations. On a GPU this excludes "
          "what CUDA and LibTorch need for themselves.");
  if (v.shows(device.kind == DeviceKind::cuda)) {
    v.field("index", device.index, IntRange{0, 1023},
            "Number of the GPU; several devices may share one.");
  }
  if (v.shows(device.imitate != DeviceImitation{})) {
    v.section("imitate", [&](auto& imitate) { visit_imitation(device.imitate, imitate); });
  }
}

template <typename Config, typename Visitor>
void visit_link(Config& link, Visitor& v) {
  v.require_key("between", "list the numbers of the devices, such as [0, 1]");
  v.field("between", link.between, IntRange{0, 1 << 16},
          "Numbers of the devices, in the order of `devices`, from 0. The link connects each pair "
          "of them; where several links connect a pair, the first counts.");
  v.require_key("rate", "write the rate of copies, such as 2GB/s");
  v.field("rate", link.bytes_per_s, RateRange{.min = 1_KiB, .may_be_unlimited = false},
          "Rate of copies over the link.");
  v.field("latency", link.latency_s, NumberRange{.min = 0, .max = 60},
          "Seconds from the end of sending to the arrival of a copy.");
  v.field("shared", link.shared, kAny,
          "`true`: all copies over the link take turns, as over one network card. `false`: each "
          "device has the rate to each other one, in both directions at once.");
}

template <typename Config, typename Visitor>
void visit_seed(Config& train, Visitor& v) {
  v.field("seed", train.seed, kAny,
          "Seed of initial weights, dropout, augmentation and the order of samples.",
          InContract::yes);
}

template <typename Config, typename Visitor>
void visit_batch(Config& train, Visitor& v) {
  using enum InContract;
  v.field("batch_size", train.batch_size, IntRange{1, 1 << 24},
          "Samples per step, over all virtual nodes.", yes);
  v.field("virtual_nodes", train.virtual_nodes, IntRange{0, 1 << 16},
          "Number of equal slices of the batch, computed one by one; divides `batch_size`. 0: its "
          "largest divisor up to 8.",
          yes);
  v.field("reduction_groups", train.reduction_groups, IntRange{0, 1 << 16},
          "Groups of consecutive virtual nodes whose gradients are summed in order; divides "
          "`virtual_nodes`. 0: the largest divisor up to 8.",
          yes);
  v.field("data_parallel", train.data_parallel, IntRange{1, 1 << 16, "auto", kAutoDataParallel},
          "Number of devices that compute a step together, at most `reduction_groups`. `auto`: as "
          "many as make the step faster, see below.");
  v.field("max_data_parallel", train.max_data_parallel, IntRange{0, 1 << 16},
          "Most devices that rules and shares may give; host memory is reserved for them. 0: "
          "the larger of `data_parallel` and the largest number of devices with a strategy; with "
          "`auto` or `sharing: fill`, at least as many as groups and devices allow.");
  v.field("autoscale", train.autoscale, kAny,
          "Rules that adjust the number of devices after each step, see below. Default with "
          "`data_parallel: auto`: `throughput`.");
  v.field("priority", train.priority, IntRange{1, 100},
          "Used by `scheduling.sharing`; larger is more important.");
}

template <typename Config, typename Visitor>
void visit_extension(Config& train, Visitor& v) {
  using enum InContract;
  if (v.shows(!train.extended_from.empty())) {
    v.field("extended_from", train.extended_from, kSteps,
            "`max_steps` before each extension of a run; `resume` with a larger `max_steps` writes "
            "it.",
            unless_default);
  }
  v.field("lr_scheduler_extend", train.lr_scheduler_extend, kAny,
          "Learning rate where `resume` extends a run beyond the end of `cosine` or `linear`: a "
          "new schedule over the additional steps (`restart`), or the rest of the schedule of the "
          "new length (`stretch`). With `none` such a run is not extended.",
          unless_default);
}

template <typename Config, typename Visitor>
void visit_optimizer(Config& train, Visitor& v) {
  using enum InContract;
  constexpr NumberRange kPart{.min = 0, .max = 1, .below_max = true};
  v.field("optimizer", train.optimizer, kAny, "AdamW, or SGD with momentum.", yes);
  v.field("learning_rate", train.learning_rate, kRate, "The maximum, after the warm-up.", yes);
  v.field("weight_decay", train.weight_decay, kRate,
          "Decoupled weight decay; not applied to norms and biases.", yes);
  v.field("momentum", train.momentum, kPart, "Momentum of `sgd`.", of_sgd);
  v.field("adam_beta1", train.adam_beta1, kPart, "Decay of the first moment of `adamw`.", of_adamw);
  v.field("adam_beta2", train.adam_beta2, kPart, "Decay of the second moment of `adamw`.",
          of_adamw);
  v.field("adam_epsilon", train.adam_epsilon, kPart, "Epsilon of `adamw`.", of_adamw);
  v.field("max_grad_norm", train.max_grad_norm, kMaxGradNorm,
          "Clips gradients by their exact norm over all trained parameters; 0: no clipping.", yes);
  v.field(
      "lr_scheduler_type", train.lr_scheduler_type, kAny,
      "Learning rate after the warm-up. `cosine` and `linear` fall to 0; `warmup_stable_decay` is "
      "constant and falls to 0 over the last steps.",
      yes);
  v.field("warmup_ratio", train.warmup_ratio, kPart, "Part of the steps with linear warm-up.", yes);
  v.field("decay_ratio", train.decay_ratio, NumberRange{.min = 0, .max = 1},
          "Part of the steps in which `warmup_stable_decay` falls linearly.", of_decay);
  visit_extension(train, v);
}

template <typename Config, typename Visitor>
void visit_train(Config& train, Visitor& v) {
  using enum InContract;
  visit_batch(train, v);
  v.field("max_steps", train.max_steps, kSteps, "Number of steps.", yes);
  v.field("dtype", train.dtype, kAny,
          "Type in which layers compute and weights travel. Weights in host memory, optimizer "
          "state, growing gradient sums, norms, softmax and loss stay in fp32.",
          unless_default);
  v.field("gradient_dtype", train.gradient_dtype, kAny,
          "Type of gradient sums in transfer and in host memory. `bf16` halves their size; it "
          "rounds the sum of each reduction group, and each sum of such sums.",
          unless_default);
  visit_optimizer(train, v);
  v.field("eval_steps", train.eval_steps, kStepsOrNone,
          "Steps between evaluations; 0: only at the end.", yes);
  v.field("eval_batches", train.eval_batches, IntRange{1, 1 << 24}, "Batches per evaluation.", yes);
}

template <typename Config, typename Visitor>
void visit_early_terminate(Config& early, Visitor& v) {
  v.field("type", early.type, kAny,
          "`hyperband`: successive halving; `asha`: the same for trials that begin one after the "
          "other; `median`: stops a trial that is worse than the median; `pbt`: stops no trial, "
          "but the worst ones continue from the state of the best, with another learning rate. "
          "Required.");
  v.field("min_iter", early.min_iter, kSteps,
          "Number of steps before the first comparison. Required.");
  const bool is_pbt = early.type == EarlyTerminateKind::pbt;
  const bool has_interval = is_pbt || early.type == EarlyTerminateKind::median;
  if (v.applies(!has_interval)) {
    v.field("eta", early.eta, IntRange{2, 1000},
            "1/`eta` of the trials continue, for `eta` times as many steps.");
  }
  if (v.applies(early.type == EarlyTerminateKind::hyperband)) {
    v.field("brackets", early.brackets, kBrackets,
            "Of `hyperband`: number of brackets among which trials are distributed. The trials of "
            "the first are compared from `min_iter` steps on, those of each next one from `eta` "
            "times as many on. `all`: the last one is never compared.");
  }
  if (v.applies(has_interval)) {
    v.field("interval", early.interval, kStepsOrNone,
            "Of `median` and `pbt`: number of steps between comparisons; 0: `min_iter`.");
  }
  if (v.applies(is_pbt)) {
    v.field("quantile", early.quantile, NumberRange{.min = 0, .max = 0.5, .above_min = true},
            "Of `pbt`: fraction of the trials that take over the state of as many of the best.");
  }
  if (v.applies(!is_pbt && early.type != EarlyTerminateKind::hyperband)) {
    v.field("max_concurrent_trials", early.max_concurrent_trials, IntRange{1, 10'000},
            "Of `asha` and `median`: number of trials that train at once; the others begin as "
            "these end. `host_memory` must hold the state of all that train at once.");
  }
}

template <typename Config, typename Visitor>
void visit_checkpoint(Config& checkpoint, Visitor& v) {
  v.field("every_steps", checkpoint.every_steps, kStepsOrNone,
          "Save after this many steps; 0: off. Training continues meanwhile.");
  v.field("every_s", checkpoint.every_s, NumberRange{.min = 0},
          "Save after this many seconds; 0: off.");
  v.field("keep", checkpoint.keep, IntRange{0, 1000},
          "Number of checkpoints kept, each with weights, optimizer state and history; 0: none are "
          "written. The disk must have room for one more per trial before the run starts.");
}

}  // namespace spillway
