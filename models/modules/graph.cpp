#include "spillway/graph.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/base/reason.h"
#include "models/modules/graph_impl.h"
#include "spillway/error.h"

namespace spillway {
namespace {

[[noreturn]] void reject_layer(const std::string& name, const std::string& problem) {
  reject_model(fmt::format("layer '{}' {}", name, problem));
}

/// Runs a function, whose errors are told with its name.
template <typename Work>
auto run_for(const std::string& name, const Work& work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    reject_layer(name, reason_of(error));
  }
}

at::Tensor run_loss(const std::string& name, const LossFunction& function,
                    std::span<const at::Tensor> inputs) {
  const LossSum loss = run_for(name, [&] { return function(inputs); });
  if (!loss.sum.defined() || loss.sum.dim() != 0 || loss.sum.scalar_type() != at::kFloat) {
    reject_layer(name, "must give the sum of the losses as a float32 tensor without dimensions");
  }
  if (!loss.sum.requires_grad())
    reject_model("has nothing to train: its loss depends on no parameter");
  if (!std::isfinite(loss.weight) || loss.weight < 0) {
    reject_layer(name, fmt::format("gives the weight {}, must be at least 0", loss.weight));
  }
  return {};
}

void run_metric(const std::string& layer, const Metric& metric,
                std::span<const at::Tensor> inputs) {
  const std::string name = fmt::format("{}, metric {}", layer, metric.spec.name);
  if ((metric.spec.num_sums > 0) != (metric.sums != nullptr)) {
    reject_layer(name, "must have num_sums and a function sums, or neither");
  }
  if (!metric.sums) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor sums = run_for(name, [&] { return metric.sums(inputs); });
  const bool is_right = sums.defined() && sums.dim() == 1 && sums.size(0) == metric.spec.num_sums &&
                        (sums.scalar_type() == at::kFloat || sums.scalar_type() == at::kDouble);
  if (is_right) return;
  reject_layer(name, fmt::format("must give its {} sums as a float32 or float64 tensor [{}]",
                                 metric.spec.num_sums, metric.spec.num_sums));
}

}  // namespace

void reject_model(const std::string& problem) { throw ConfigError("model", 0, problem); }

Graph::Node Graph::Impl::add_value(Value value) {
  values.push_back(std::move(value));
  return {static_cast<int>(values.size()) - 1};
}

Graph::Node Graph::Impl::add_input(std::vector<std::int64_t> shape, DType dtype,
                                   std::int64_t limit) {
  if (dtype != DType::f32 && dtype != DType::i64) reject_model("must have f32 or i64 inputs");
  if (std::ranges::any_of(shape, [](std::int64_t size) { return size < 1; })) {
    reject_model("must have inputs of positive sizes");
  }
  std::int64_t begin = 0;
  for (const Value& value : values) begin += value.part ? value.part->elements() : 0;
  std::vector<std::int64_t> sizes{CheckedModule::kProbe};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return add_value({.probe = at::zeros(sizes, dtype == DType::f32 ? at::kFloat : at::kLong),
                    .part = RowPart{.begin = begin, .shape = std::move(shape), .dtype = dtype},
                    .limit = limit});
}

bool Graph::Impl::has_loss() const { return !pieces.empty() && pieces.back().value < 0; }

std::vector<at::Tensor> Graph::Impl::read(const std::string& name,
                                          const std::vector<Node>& inputs) {
  if (name.empty()) reject_model("has a layer without a name; name each");
  if (has_loss()) reject_layer(name, "comes after the loss; add the loss last");
  if (std::ranges::find(pieces, name, &Piece::name) != pieces.end()) {
    reject_layer(name, "has the name of another one; give each a name of its own");
  }
  if (inputs.empty()) reject_layer(name, "has no inputs");
  std::vector<at::Tensor> tensors;
  for (const Node node : inputs) {
    if (node.index < 0 || node.index >= std::ssize(values)) {
      reject_layer(name, "has an input that is no node of this graph");
    }
    Value& value = values[static_cast<std::size_t>(node.index)];
    ++value.num_readers;
    tensors.push_back(value.probe);
  }
  return tensors;
}

Graph::Node Graph::Impl::add_piece(
    Piece piece, const std::function<at::Tensor(std::span<const at::Tensor>)>& run) {
  const std::vector<at::Tensor> inputs = read(piece.name, piece.inputs);
  const at::Tensor output = run(inputs);
  Node made;
  if (output.defined()) {
    const bool has_gradient = output.requires_grad();
    made = add_value({.probe = output.detach().requires_grad_(has_gradient)});
  }
  piece.value = made.index;
  pieces.push_back(std::move(piece));
  return made;
}

Graph::Graph() : impl_(std::make_unique<Impl>()) {}
Graph::~Graph() = default;

Graph::Node Graph::input(std::vector<std::int64_t> shape, DType dtype) {
  return impl_->add_input(std::move(shape), dtype, 0);
}

Graph::Node Graph::indices(std::vector<std::int64_t> shape, std::int64_t limit) {
  if (limit < 1)
    reject_model(
        fmt::format("has an input of indices with the limit {}, must be at least 1", limit));
  return impl_->add_input(std::move(shape), DType::i64, limit);
}

Graph::Node Graph::add(std::string name, torch::nn::AnyModule module, std::vector<Node> inputs) {
  CheckedModule checked(name, std::move(module));
  const auto run = [&](std::span<const at::Tensor> x) { return checked.run(x); };
  Impl::Piece piece{.name = std::move(name), .work = checked, .inputs = std::move(inputs)};
  return impl_->add_piece(std::move(piece), run);
}

Graph::Node Graph::apply(std::string name, Function function, std::vector<Node> inputs) {
  const auto run = [name, function](std::span<const at::Tensor> x) {
    const auto forward = [&](std::span<const at::Tensor> copies) {
      return run_for(name, [&] { return function(copies); });
    };
    return run_probe(x, {}, forward,
                     [&](const std::string& problem) { reject_layer(name, problem); });
  };
  return impl_->add_piece(
      {.name = std::move(name), .work = std::move(function), .inputs = std::move(inputs)}, run);
}

void Graph::loss(std::string name, LossFunction function, std::vector<Node> inputs,
                 std::vector<Metric> metrics) {
  const auto run = [&](std::span<const at::Tensor> x) {
    for (const Metric& metric : metrics) run_metric(name, metric, x);
    return run_loss(name, function, x);
  };
  impl_->add_piece(
      {.name = name, .work = function, .inputs = std::move(inputs), .metrics = metrics}, run);
}

std::vector<std::int64_t> Graph::shape(Node node) const {
  return impl_->values.at(static_cast<std::size_t>(node.index)).probe.sizes().slice(1).vec();
}

}  // namespace spillway
