#include "spillway/sequential.h"

#include <fmt/format.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>

#include <optional>
#include <utility>

#include "models/modules/graph_impl.h"

namespace spillway {
namespace {

using torch::nn::Sequential;
using MakeSequential = std::function<Sequential()>;

bool has_own_loss(const SequentialConfig& config) { return config.loss_function != nullptr; }

void check(const SequentialConfig& config) {
  if (has_own_loss(config)) return;
  if (config.loss != "cross_entropy" && config.loss != "mse") {
    reject_model(fmt::format(
        "has the loss '{}'; write cross_entropy or mse, or give a loss_function", config.loss));
  }
  if (config.loss == "mse" && config.input_dtype == DType::i64) {
    reject_model("with the loss mse must have f32 inputs");
  }
}

/// The number of rows of an embedding.
std::optional<std::int64_t> num_embeddings(const torch::nn::Module& module) {
  if (const auto* rows = module.as<torch::nn::Embedding>()) return rows->options.num_embeddings();
  if (const auto* rows = module.as<torch::nn::EmbeddingBag>())
    return rows->options.num_embeddings();
  return std::nullopt;
}

Graph::Node add_input(Graph& graph, const SequentialConfig& config,
                      const torch::nn::Module& first) {
  const auto limit = num_embeddings(first);
  if (limit && config.input_dtype == DType::i64) return graph.indices(config.input_shape, *limit);
  return graph.input(config.input_shape, config.input_dtype);
}

void add_loss(Graph& graph, const SequentialConfig& config, Graph::Node output) {
  if (has_own_loss(config)) {
    const Graph::Node targets = graph.input(config.target_shape, config.target_dtype);
    return graph.loss("loss", config.loss_function, {output, targets}, config.metrics);
  }
  std::vector<std::int64_t> shape = graph.shape(output);
  if (config.loss == "mse") {
    return graph.loss("loss", &squared_error, {output, graph.input(std::move(shape))},
                      config.metrics);
  }
  if (shape.empty()) reject_model("must end in [B, ..., C] logits for cross_entropy");
  const std::int64_t num_classes = shape.back();
  shape.pop_back();
  graph.loss("loss", &cross_entropy, {output, graph.indices(std::move(shape), num_classes)},
             config.metrics);
}

void fill(Graph& graph, const MakeSequential& make, const SequentialConfig& config) {
  Sequential model = make();
  if (model.is_empty() || model->is_empty())
    reject_model("is a Sequential without children; add some");
  auto module = model->begin();
  Graph::Node last = add_input(graph, config, *module->ptr());
  for (const auto& child : model->named_children())
    last = graph.add(child.key(), *module++, {last});
  add_loss(graph, config, last);
}

}  // namespace

ModelFactory sequential_factory(std::function<Sequential()> make, SequentialConfig config) {
  check(config);
  GraphIdentity identity{.family = "sequential",
                         .prefix = "sequential/" + (config.name.empty() ? "" : config.name + "/"),
                         .loss_kind = "sequential." + config.loss};
  return graph_factory([make = std::move(make),
                        config = std::move(config)](Graph& graph) { fill(graph, make, config); },
                       std::move(identity));
}

}  // namespace spillway
