#include "spillway/sequential.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "models/base/model_checks.h"
#include "models/modules/module_child.h"
#include "models/modules/module_layer.h"
#include "models/modules/seeded_generator.h"
#include "spillway/error.h"
#include "spillway/model_builder.h"

namespace spillway {
namespace {

using torch::nn::Sequential;
using Make = std::function<Sequential()>;

constexpr std::int64_t kProbe = ModuleChild::kProbe;

[[noreturn]] void reject(const std::string& problem) { throw ConfigError("model", 0, problem); }

TensorSpec spec_of(const at::Tensor& probe, std::int64_t vn_size) {
  TensorSpec spec{DType::f32, {{"sample", vn_size}}};
  for (std::int64_t d = 1; d < probe.dim(); ++d) {
    spec.dims.push_back({"dim" + std::to_string(d), probe.size(d)});
  }
  return spec;
}

ParamSpec param_of(const std::string& name, const at::Tensor& value,
                   const StatisticSpec& statistic = {}) {
  ParamSpec param{.name = name,
                  .trainable = value.requires_grad(),
                  .decay = value.dim() >= 2,
                  .statistic = statistic};
  if (value.scalar_type() == at::kLong) param.tensor.dtype = DType::i64;
  for (const std::int64_t size : value.sizes()) {
    param.tensor.dims.push_back({"dim" + std::to_string(param.tensor.dims.size()), size});
  }
  return param;
}

/// What its rows hold behind the input, for an output like `probe`.
RowPart targets_of(const SequentialConfig& config, const at::Tensor& probe, std::int64_t begin) {
  RowPart part{.begin = begin, .shape = probe.sizes().slice(1).vec()};
  if (config.loss == "mse") return part;
  if (part.shape.empty()) reject("must end in [B, ..., C] logits for cross_entropy");
  part.shape.pop_back();
  return part;
}

void check(const SequentialConfig& config) {
  const bool ids = config.input_dtype == DType::i64;
  if (!ids && config.input_dtype != DType::f32) reject("must have f32 or i64 inputs");
  if (std::ranges::any_of(config.input_shape, [](std::int64_t size) { return size < 1; })) {
    reject("must have an input_shape of positive sizes");
  }
  if (config.loss != "cross_entropy" && config.loss != "mse") {
    reject(fmt::format("has the loss '{}', must be cross_entropy or mse", config.loss));
  }
  if (config.loss == "mse" && ids) reject("with the loss mse must have f32 inputs");
}

/// Writes what `make` makes after manual_seed(seed).
void initialize(const Make& make, const ModelSpec& spec, std::uint64_t seed,
                std::span<std::byte* const> params) {
  const SeededGenerator seeded(seed);
  std::vector<at::Tensor> values;
  for (const ModuleChild& child : children_of(make())) {
    for (const auto& param : child.parameters()) values.push_back(param.value().detach());
    const ModuleStatistics statistics = child.statistics();
    for (const auto& statistic : statistics.all()) values.push_back(statistic.buffer);
  }
  bool same = values.size() == params.size();
  for (std::size_t p = 0; same && p < params.size(); ++p) {
    same = values[p].sizes().vec() == spec.params[p].tensor.shape();
    if (!same) break;
    const at::Tensor value = values[p].contiguous();
    std::memcpy(params[p], value.const_data_ptr(), value.nbytes());
  }
  if (!same) throw Error("the function that makes a Sequential made another model than before");
}

/// Zeros in place of an input; [kProbe, ...].
at::Tensor probe_of(const SequentialConfig& config) {
  std::vector<std::int64_t> shape{kProbe};
  shape.insert(shape.end(), config.input_shape.begin(), config.input_shape.end());
  return at::zeros(shape, config.input_dtype == DType::f32 ? at::kFloat : at::kLong);
}

/// All of them, before the first gives its parameters away.
std::vector<ModuleChild> checked_children(Sequential model) {
  std::vector<ModuleChild> children = children_of(std::move(model));
  std::set<const void*> seen;
  for (const ModuleChild& child : children) child.check(seen);
  return children;
}

LayerSpec layer_of(const ModuleChild& child, ModelBuilder& builder, const std::string& kind,
                   int input) {
  LayerSpec layer{.name = child.name(), .kind = kind + child.kind(), .inputs = {input}};
  const auto add = [&](const ParamSpec& param) {
    layer.params.push_back(builder.add_param(param));
  };
  for (const auto& param : child.parameters())
    add(param_of(child.name() + "." + param.key(), param.value()));
  const ModuleStatistics statistics = child.statistics();
  for (const auto& statistic : statistics.all())
    add(param_of(child.name() + "." + statistic.name, statistic.buffer, statistic.spec));
  return layer;
}

std::unique_ptr<Layer> make_layer(const ModuleChild& child, std::unique_ptr<RowPart> part) {
  if (const auto p = child.dropout()) return make_dropout_layer(*p, std::move(part));
  return make_module_layer(child.module(), std::move(part));
}

std::unique_ptr<Model> make_model(const Make& make, const SequentialConfig& config,
                                  const std::string& kind, std::int64_t vn_size) {
  const SeededGenerator seeded(0);
  ModelBuilder builder("sequential");
  const RowPart input{.shape = config.input_shape};
  const int rows = builder.add_batch("rows", {});
  int last = rows;
  at::Tensor x = probe_of(config);
  for (ModuleChild& child : checked_children(make())) {
    if (const auto limit = child.num_embeddings(); limit && last == rows) {
      builder.spec().indices.push_back({0, input.elements(), *limit});
    }
    if (!child.dropout()) {
      x = child.run(x);
    } else if (!x.is_floating_point()) {
      reject("has a dropout in front of an embedding; put it behind");
    }
    LayerSpec layer = layer_of(child, builder, kind, last);  // before its values are given away
    auto part = last == rows ? std::make_unique<RowPart>(input) : nullptr;
    last = builder.add_layer(std::move(layer), make_layer(child, std::move(part)),
                             spec_of(x, vn_size));
    detail::check_vn_size(vn_size, x.numel() / kProbe);
  }
  ModelSpec& spec = builder.spec();
  if (std::ranges::none_of(spec.params, &ParamSpec::trainable)) reject("has nothing to train");
  const RowPart targets = targets_of(config, x, input.elements());
  const std::int64_t elements = targets.begin + targets.elements();
  spec.edges[0].tensor = {config.input_dtype, {{"sample", vn_size}, {"value", elements}}};
  if (config.loss == "cross_entropy") {
    spec.indices.push_back({targets.begin, elements, x.size(-1)});
  }
  builder.add_loss(
      {.name = "loss", .kind = "sequential." + config.loss, .inputs = {last, rows}},
      config.loss == "mse" ? make_mse_layer(targets) : make_cross_entropy_layer(targets));
  auto model = std::move(builder).build();
  model->initialize = [make, spec = model->spec](std::uint64_t seed,
                                                 std::span<std::byte* const> params) {
    initialize(make, spec, seed, params);
  };
  return model;
}

}  // namespace

std::function<std::unique_ptr<Model>(std::int64_t)> sequential_factory(
    std::function<Sequential()> make, SequentialConfig config) {
  check(config);
  const std::string kind = "sequential/" + (config.name.empty() ? "" : config.name + "/");
  return [make = std::move(make), config = std::move(config), kind](std::int64_t vn_size) {
    return make_model(make, config, kind, vn_size);
  };
}

}  // namespace spillway
