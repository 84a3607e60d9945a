#include "trainer/trial/trial_contract.h"

#include <ATen/Version.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include "core/base/xxh3.h"
#include "core/spec/stored_tensor.h"
#include "models/data/sample_check.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/parameter_groups.h"
#include "trainer/config/train_changes.h"
#include "trainer/profile/machine.h"
#include "trainer/profile/numerics.h"
#include "trainer/torch/portable_kernels.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {
namespace {

void describe(const TensorSpec& tensor, std::string& text) {
  text += fmt::format(" {}", static_cast<int>(tensor.dtype));
  for (const Dim& dim : tensor.dims) text += fmt::format(",{}", dim.size);
}

/// Layers, parameters, edges.
std::string description(const ModelSpec& model) {
  std::string text;
  for (const ParamSpec& param : model.params) {
    text += "param " + param.name + (param.trainable ? " trained" : " fixed") +
            (param.decay ? " decays" : "") + (param.gradient == DType::bf16 ? " rounded" : "");
    describe(param.tensor, text);
    text += '\n';
  }
  for (const EdgeSpec& edge : model.edges) {
    text += "edge";
    describe(edge.tensor, text);
    if (edge.makers > 1) text += fmt::format(" of {}", edge.makers);
    text += '\n';
  }
  for (const LayerSpec& layer : model.layers) {
    text += "layer " + layer.name + " " + layer.kind;
    for (const auto* numbers : {&layer.params, &layer.inputs, &layer.outputs}) {
      text += " :";
      for (int number : *numbers) text += fmt::format(" {}", number);
    }
    if (layer.draws_as >= 0) text += fmt::format(" : draws as {}", layer.draws_as);
    text += '\n';
  }
  return text;
}

/// A hash of the parameters that no checkpoint has; empty: there are none.
std::string xxh3_of_contents(const ModelSpec& model) {
  std::string text;
  for (const ParamSpec& param : model.params) {
    if (is_constant(param)) text += param.name + " " + param.content + "\n";
  }
  return text.empty() ? "" : xxh3(std::as_bytes(std::span(text)));
}

std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

/// Adds the fields of `train` that are part of the contract.
class TrainFields {
 public:
  TrainFields(const TrainConfig& train, Contract& contract) : train_(train), contract_(contract) {}

  template <typename Value, typename Range>
  void field(const std::string& key, const Value& value, const Range& /*range*/,
             const char* /*sentence*/, InContract in_contract = InContract::no) {
    const bool is_sgd = train_.optimizer == OptimizerKind::sgd;
    const bool decays = train_.lr_scheduler_type == LrSchedulerType::warmup_stable_decay;
    if constexpr (requires(const Value& any) { text(any); }) {
      if (in_contract == InContract::yes ||
          (in_contract == InContract::unless_default && value != Value{}) ||
          (in_contract == InContract::of_sgd && is_sgd) ||
          (in_contract == InContract::of_adamw && !is_sgd) ||
          (in_contract == InContract::of_decay && decays)) {
        contract_["train." + key] = text(value);
      }
    }
  }
  bool shows(bool condition) const { return condition; }

 private:
  static std::string text(double value) { return exact(value); }
  static std::string text(std::int64_t value) { return fmt::to_string(value); }
  static std::string text(std::uint64_t value) { return fmt::to_string(value); }
  static std::string text(int value) { return fmt::to_string(value); }
  static std::string text(Named auto value) { return to_string(value); }
  static std::string text(const std::vector<std::int64_t>& values) {
    return fmt::format("{}", fmt::join(values, ","));
  }

  const TrainConfig& train_;
  Contract& contract_;
};

constexpr const char* kMaxSteps = "train.max_steps";
constexpr const char* kExtendedFrom = "train.extended_from";
constexpr const char* kExtendMode = "train.lr_scheduler_extend";

/// Empty if the contract lacks the field.
std::string text_at(const Contract& contract, const char* field) {
  const auto found = contract.find(field);
  return found == contract.end() ? "" : found->second;
}

/// As far as it decides bits.
std::string processor() {
  if (uses_portable_kernels()) return "x86-64 with AVX2 and FMA, portable numerics";
  return processor_name() + ", " + at::get_cpu_capability();
}

void add(const DataSource& source, bool evaluation, const ModelSpec& model, Xxh3& hash) {
  const std::uint64_t samples = source.num_samples();
  const std::size_t row_bytes =
      static_cast<std::size_t>(source.sample_elements()) * size_of(source.dtype());
  const std::size_t num_rows = std::max<std::size_t>(1, 256_KiB / row_bytes);
  std::vector<std::byte> block(num_rows * row_bytes);
  hash.add(&samples, sizeof samples);
  for (std::uint64_t first = 0; first < samples; first += num_rows) {
    const auto rows =
        std::span(block).first(std::min<std::uint64_t>(num_rows, samples - first) * row_bytes);
    source.read_rows(first, rows);
    for (std::size_t i = 0; i * row_bytes < rows.size(); ++i) {
      check_sample(model, source.dtype(), rows.subspan(i * row_bytes, row_bytes),
                   {evaluation, first + i});
    }
    hash.add(rows.data(), rows.size());
  }
}

}  // namespace

std::vector<ContractDifference> changes_since(const Contract& then, const Contract& now) {
  auto found = differences(then, now);
  const std::string ends = text_at(now, kExtendedFrom), before = text_at(then, kExtendedFrom);
  const std::string begin =
      (before.empty() ? "" : before + ",") + text_at(then, kMaxSteps);  // of what it has now
  if (ends != begin && !ends.starts_with(begin + ",")) return found;
  std::erase_if(found, [&](const ContractDifference& difference) {
    const bool is_mode = before.empty() && difference.field == kExtendMode;
    return is_mode || difference.field == kMaxSteps || difference.field == kExtendedFrom;
  });
  return found;
}

std::string xxh3_of(const DataSplit& data, const ModelSpec& model) {
  const OneTorchThread one_thread;
  Xxh3 hash;
  add(*data.train, /*evaluation=*/false, model, hash);
  if (data.eval) add(*data.eval, /*evaluation=*/true, model, hash);
  return hash.hex();
}

Contract contract_of(const TrialConfig& trial, const ModelSpec& model, const std::string& data_xxh3,
                     const std::string& device) {
  const TrainConfig& train = trial.train;
  const std::string shapes = description(model);
  Contract contract{{"model", xxh3(std::as_bytes(std::span(shapes)))},
                    {"data", data_xxh3},
                    {"numerics", fmt::to_string(kNumericsVersion)},
                    {"threads_per_op", "1"},
                    {"libtorch", TORCH_VERSION},
                    {"device", device == "cpu" ? processor() : device}};
  const std::string contents = xxh3_of_contents(model);
  if (!contents.empty()) contract[kFrozenParameters] = contents;
  TrainFields fields(train, contract);
  visit_seed(train, fields);
  visit_train(train, fields);
  const bool is_extended = !train.extended_from.empty();
  if (!is_extended || !spans_all_steps(train.lr_scheduler_type)) contract.erase(kExtendMode);
  if (train.lr_function.factor) contract["train.lr_function"] = train.lr_function.name;
  set_groups(contract, train.parameter_groups);
  set_changes(contract, train.changes);
  for (const Numerics::Group& group : numerics().groups) {
    if (device != "cpu" && !group.on_host) continue;
    contract[std::string(kFingerprint) + group.name] = group.xxh3;
  }
  contract.insert(trial.contract.begin(), trial.contract.end());
  return contract;
}

std::string contract_text(const EarlyTerminate& early) {
  using enum EarlyTerminateKind;
  const bool halves = early.type == hyperband || early.type == asha;
  std::string text = early.type == hyperband ? "" : fmt::format("{}, ", to_string(early.type));
  text += fmt::format("min_iter {}", early.min_iter);
  text +=
      halves ? fmt::format(", eta {}", early.eta) : fmt::format(", interval {}", early.interval);
  if (early.brackets > 1 && early.type == hyperband) {
    text += fmt::format(", brackets {}", early.brackets);
  }
  if (early.type == pbt) {
    text += fmt::format(", quantile {}, seed {}", early.quantile, early.seed);
  } else if (early.type != hyperband) {
    text += fmt::format(", max_concurrent_trials {}", early.max_concurrent_trials);
  }
  if (early.evaluates()) text += ", by " + early.metric_name();
  if (early.goal == MetricGoal::maximize) text += ", maximized";
  return text;
}

}  // namespace spillway
