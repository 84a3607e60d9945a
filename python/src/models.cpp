#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/document.h"
#include "python/src/module.h"
#include "python/src/tensor_caster.h"
#include "runs/config/embedded.h"
#include "runs/folder/trial_factory.h"
#include "spillway/builtin.h"
#include "spillway/tensor_source.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace spillway::python {
namespace {

/// Only the fields of the model.
std::map<std::string, std::string> contract_of_model(const RunConfig& config) {
  auto contract = contract_fields(config);
  std::erase_if(contract, [](const auto& field) { return !field.first.starts_with("model."); });
  return contract;
}

PythonModel model_of(const std::string& document) {
  const RunConfig config = read_document(document, &read_model);
  return {model_factory(config), contract_of_model(config), {}, {}};
}

/// The contract is the one of a configuration with this file.
PythonModel exported_model(const std::string& path, const TorchPieces& pieces) {
  RunConfig config{.family = ModelFamily::torch};
  config.torch = {.path = path, .pieces = pieces, .info = exported_info(path)};
  return {exported_factory(path, pieces), contract_of_model(config), path, config.torch.info};
}

PythonData data_of(std::vector<at::Tensor> parts, double eval_fraction,
                   std::optional<std::vector<at::Tensor>> eval_parts) {
  auto all = tensor_rows(std::move(parts));
  if (!eval_parts) return {std::make_shared<const DataSplit>(split(std::move(all), eval_fraction))};
  auto eval = tensor_rows(std::move(*eval_parts));
  if (eval->sample_elements() != all->sample_elements() || eval->dtype() != all->dtype()) {
    throw ConfigError("data", 0, "has evaluation samples of another shape or type");
  }
  return {std::make_shared<const DataSplit>(
      DataSplit{.train = std::move(all), .eval = std::move(eval), .augment = nullptr})};
}

}  // namespace

void bind_models(nb::module_& module) {
  nb::class_<PythonModel>(module, "Model", "A model to train.");
  module.def("model", &model_of, "document"_a,
             "A built-in model, from the section `model` of a configuration.");
  module.def(
      "exported_model",
      [](const std::string& path, std::int64_t attention, std::int64_t mlp, std::int64_t vocabulary,
         std::int64_t linear) {
        return exported_model(path, {attention, mlp, vocabulary, linear});
      },
      "path"_a, nb::kw_only(), "attention"_a = 1, "mlp"_a = 1, "vocabulary"_a = 1, "linear"_a = 1,
      nb::call_guard<nb::gil_scoped_release>(),
      "A model of PyTorch in a file, with its layers in pieces.");

  nb::class_<PythonData>(module, "Data", "Samples for training and evaluation.")
      .def_prop_ro(
          "num_samples", [](const PythonData& data) { return data.split->train->num_samples(); },
          "Samples for training.")
      .def_prop_ro(
          "num_eval_samples",
          [](const PythonData& data) {
            return data.split->eval ? data.split->eval->num_samples() : 0;
          },
          "Samples for evaluation.")
      .def_prop_ro(
          "sample_elements",
          [](const PythonData& data) { return data.split->train->sample_elements(); },
          "Values per sample.");
  module.def("tensor_data", &data_of, "parts"_a, "eval_fraction"_a = 0.0,
             "eval_parts"_a = nb::none(), nb::call_guard<nb::gil_scoped_release>(),
             "Samples in tensors [N, ...], which are read in place.");
  module.def(
      "bytes_data",
      [](const std::vector<std::string>& paths, std::int64_t sequence_length,
         double eval_fraction) {
        return PythonData{bytes_data(paths, sequence_length, eval_fraction)};
      },
      "paths"_a, "sequence_length"_a, "eval_fraction"_a, nb::call_guard<nb::gil_scoped_release>(),
      "Bytes of files as tokens.");
  module.def(
      "tokens_data",
      [](const std::vector<std::string>& paths, const std::string& dtype, std::int64_t vocab_size,
         std::int64_t sequence_length, double eval_fraction) {
        const auto type = value_named<TokenType>(dtype);
        if (!type) throw ConfigError("dtype", 0, "is '" + dtype + "', must be uint16 or uint32");
        return PythonData{tokens_data(paths, *type, vocab_size, sequence_length, eval_fraction)};
      },
      "paths"_a, "dtype"_a, "vocab_size"_a, "sequence_length"_a, "eval_fraction"_a,
      nb::call_guard<nb::gil_scoped_release>(),
      "Files of token numbers, as tokenizers write them.");
}

}  // namespace spillway::python
