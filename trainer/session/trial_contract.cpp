#include "trainer/session/trial_contract.h"

#include <ATen/Version.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include "models/data/sample_check.h"
#include "trainer/profile/machine.h"
#include "trainer/profile/numerics.h"
#include "trainer/storage/xxh3.h"

namespace spillway {
namespace {

void describe(const TensorSpec& tensor, std::string& text) {
  text += " " + std::to_string(static_cast<int>(tensor.dtype));
  for (const Dim& dim : tensor.dims) text += "," + std::to_string(dim.size);
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
    text += '\n';
  }
  for (const LayerSpec& layer : model.layers) {
    text += "layer " + layer.name + " " + layer.kind;
    for (const auto* numbers : {&layer.params, &layer.inputs, &layer.outputs}) {
      text += " :";
      for (int number : *numbers) text += " " + std::to_string(number);
    }
    text += '\n';
  }
  return text;
}

std::string exact(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
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

std::string xxh3_of(const DataSplit& data, const ModelSpec& model) {
  Xxh3 hash;
  add(*data.train, /*evaluation=*/false, model, hash);
  if (data.eval) add(*data.eval, /*evaluation=*/true, model, hash);
  return hash.hex();
}

Contract contract_of(const TrialConfig& trial, const ModelSpec& model, const std::string& data_xxh3,
                     const std::string& device) {
  const TrainConfig& train = trial.train;
  const std::string shapes = description(model);
  Contract contract{
      {"model", xxh3(std::as_bytes(std::span(shapes)))},
      {"data", data_xxh3},
      {"train.seed", std::to_string(train.seed)},
      {"train.batch_size", std::to_string(train.batch_size)},
      {"train.virtual_nodes", std::to_string(train.virtual_nodes)},
      {"train.reduction_groups", std::to_string(train.reduction_groups)},
      {"train.max_steps", std::to_string(train.max_steps)},
      {"train.optimizer", train.optimizer},
      {"train.learning_rate", exact(train.learning_rate)},
      {"train.weight_decay", exact(train.weight_decay)},
      {"train.max_grad_norm", exact(train.max_grad_norm)},
      {"train.lr_scheduler_type", train.lr_scheduler_type},
      {"train.warmup_ratio", exact(train.warmup_ratio)},
      {"train.eval_steps", std::to_string(train.eval_steps)},
      {"train.eval_batches", std::to_string(train.eval_batches)},
      {"numerics", std::to_string(kNumericsVersion)},
      {"threads_per_op", "1"},
      {"libtorch", TORCH_VERSION},
      {"device", device == "cpu" ? processor_name() + ", " + at::get_cpu_capability() : device}};
  if (train.optimizer == "sgd") {
    contract["train.momentum"] = exact(train.momentum);
  } else {
    contract["train.adam_beta1"] = exact(train.adam_beta1);
    contract["train.adam_beta2"] = exact(train.adam_beta2);
    contract["train.adam_epsilon"] = exact(train.adam_epsilon);
  }
  if (train.dtype != "fp32") contract["train.dtype"] = train.dtype;
  if (train.gradient_dtype != "fp32") contract["train.gradient_dtype"] = train.gradient_dtype;
  for (const Numerics::Group& group : numerics().groups) {
    if (device != "cpu" && !group.on_host) continue;
    contract[std::string(kFingerprint) + group.name] = group.xxh3;
  }
  contract.insert(trial.contract.begin(), trial.contract.end());
  return contract;
}

}  // namespace spillway
