#include "models/exported/exported_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "models/base/compute_type.h"
#include "models/base/cross_entropy.h"
#include "models/graphs/graph_program.h"
#include "models/graphs/tensor_types.h"
#include "spillway/error.h"

namespace spillway {
namespace {

using Tensors = std::span<const at::Tensor>;

/// [B, values] -> [B, shape...]
at::Tensor part_of(const at::Tensor& rows, const ExportedInput& part) {
  std::vector<std::int64_t> sizes{rows.size(0)};
  sizes.insert(sizes.end(), part.shape.begin(), part.shape.end());
  const at::Tensor values = rows.narrow(1, part.begin, part.elements()).reshape(sizes);
  return values.to(scalar_type(part.type)).contiguous();  // as in the module
}

std::vector<at::Tensor> take(const std::vector<GraphInput>& wanted, Tensors inputs) {
  std::vector<at::Tensor> taken;
  for (const GraphInput& each : wanted) {
    const at::Tensor& input = inputs[each.input];
    taken.push_back(each.part ? part_of(input, *each.part) : input);
  }
  return taken;
}

void append(std::vector<at::Tensor>& values, Tensors more) {
  values.insert(values.end(), more.begin(), more.end());
}

void append_on(c10::Device device, std::vector<at::Tensor>& values, Tensors constants) {
  for (const at::Tensor& constant : constants) {
    values.push_back(constant.to(device, /*non_blocking=*/true));
  }
}

class ExportedLayerRun final : public Layer {
 public:
  ExportedLayerRun(const ExportedSpec& spec, const ExportedLayer& layer,
                   std::vector<GraphInput> inputs, std::vector<at::Tensor> constants)
      : place_(fmt::format("layer '{}'", layer.name)),
        shape_(layer.shape),
        dtype_(layer.dtype),
        inputs_(std::move(inputs)),
        constants_(std::move(constants)),
        statistics_(statistics_of(spec, layer)),
        given_{.num_values =
                   static_cast<int>(inputs_.size() + layer.params.size() + constants_.size()),
               .statistics = statistics_},
        train_(spec.graphs[static_cast<std::size_t>(layer.train)], given_, place_ + ", training"),
        eval_(spec.graphs[static_cast<std::size_t>(layer.eval)], given_, place_ + ", evaluation") {
    for (const int statistic : statistics_) {
      if (std::ranges::count(train_.observed(), statistic) == 0) {
        throw Error(
            fmt::format("{}: its training graph does not observe value {}, which is an averaged "
                        "statistic",
                        place_, statistic));
      }
    }
  }

  LayerResult forward(Tensors inputs, Tensors params, const LayerContext& context) const override {
    std::vector<at::Tensor> values = take(inputs_, inputs);
    append(values, params);
    append_on(inputs[0].device(), values, constants_);
    std::vector<at::Tensor> observations;
    LayerResult result;
    result.output =
        (context.training ? train_ : eval_).run(std::move(values), context, observations);
    check(result.output);
    if (context.training) result.observations = in_order(observations);
    return result;
  }

 private:
  /// Value numbers of the averaged statistics of a layer.
  static std::vector<int> statistics_of(const ExportedSpec& spec, const ExportedLayer& layer) {
    std::vector<int> numbers;
    for (std::size_t p = 0; p < layer.params.size(); ++p) {
      const ExportedParam& param = spec.params[static_cast<std::size_t>(layer.params[p])];
      if (param.statistic.kind == StatisticSpec::Kind::average)
        numbers.push_back(static_cast<int>(layer.inputs.size() + p));
    }
    return numbers;
  }

  /// In the order of the parameters.
  std::vector<at::Tensor> in_order(const std::vector<at::Tensor>& observations) const {
    std::vector<at::Tensor> ordered;
    for (const int statistic : statistics_) {
      const auto found = std::ranges::find(train_.observed(), statistic);
      ordered.push_back(
          observations.at(static_cast<std::size_t>(found - train_.observed().begin())));
    }
    return ordered;
  }

  /// The memory for the output was planned by its shape.
  void check(const at::Tensor& output) const {
    if (output.defined() && output.sizes().vec() == shape_ &&
        output.scalar_type() == scalar_type(dtype_))
      return;
    throw Error(fmt::format("{}: gives {}, must give {} [{}]", place_,
                            output.defined()
                                ? fmt::format("{} [{}]", c10::toString(output.scalar_type()),
                                              fmt::join(output.sizes(), ", "))
                                : "no tensor",
                            c10::toString(scalar_type(dtype_)), fmt::join(shape_, ", ")));
  }

  std::string place_;
  std::vector<std::int64_t> shape_;
  DType dtype_;
  std::vector<GraphInput> inputs_;
  std::vector<at::Tensor> constants_;
  std::vector<int> statistics_;
  GraphProgram::Given given_;
  GraphProgram train_, eval_;
};

/// Whether targets may be ignored. Otherwise nothing has to wait for the number of those that
/// count.
bool may_ignore(const ExportedLoss& loss, const ExportedInput& targets) {
  const std::int64_t ignored = loss.ignore_index;
  return targets.limit == 0 || (ignored >= 0 && ignored < targets.limit);
}

double weight_of(const at::Tensor& counts, bool may_ignore) {
  return static_cast<double>(may_ignore ? counts.sum().item<std::int64_t>() : counts.numel());
}

/// The sums of the metric `accuracy`.
at::Tensor accuracy_of(const at::Tensor& guessed, const at::Tensor& classes,
                       const at::Tensor& counts) {
  const at::Tensor right = guessed.eq(classes).logical_and(counts);
  return at::stack({right.sum(), counts.sum()}).to(at::kDouble);
}

/// A loss that compares values with targets: a sum over examples and their weight.
class ExportedLossRun final : public Layer {
 public:
  ExportedLossRun(const ExportedSpec& spec, std::vector<GraphInput> inputs)
      : loss_(spec.loss), has_accuracy_(spec.has_accuracy), inputs_(std::move(inputs)) {
    may_ignore_ = may_ignore(loss_, *inputs_[1].part);
  }

  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    const std::vector<at::Tensor> taken = take(inputs_, inputs);
    const at::Tensor values = taken[0].to(at::kFloat);
    LayerResult result = loss_.kind == ExportedLoss::Kind::cross_entropy
                             ? of_classes(values, taken[1].reshape({-1}), context.training)
                             : of_numbers(values, taken[1].to(at::kFloat).reshape(values.sizes()));
    if (!context.training) result.prediction = values;
    return result;
  }

 private:
  LayerResult of_classes(const at::Tensor& values, const at::Tensor& classes, bool training) const {
    const at::Tensor logits = values.reshape({classes.numel(), -1});
    const at::Tensor counts = classes.ne(loss_.ignore_index);
    LayerResult result{
        .output = cross_entropy_of(logits, classes, loss_.ignore_index, loss_.label_smoothing),
        .weight = weight_of(counts, may_ignore_)};
    if (!training && has_accuracy_)
      result.metrics = accuracy_of(at::argmax(logits, -1), classes, counts);
    return result;
  }

  LayerResult of_numbers(const at::Tensor& values, const at::Tensor& targets) const {
    const at::Tensor sum =
        loss_.kind == ExportedLoss::Kind::mse
            ? at::mse_loss(values, targets, at::Reduction::Sum)
            : at::binary_cross_entropy_with_logits(values, targets, {}, {}, at::Reduction::Sum);
    return {.output = sum, .weight = static_cast<double>(values.numel())};
  }

  ExportedLoss loss_;
  bool has_accuracy_;
  bool may_ignore_ = false;
  std::vector<GraphInput> inputs_;
};

/// The cross entropy of classes that pieces share. Source: Shoeybi et al., "Megatron-LM", 2019,
/// section 3.
class DividedLossRun final : public Layer {
 public:
  DividedLossRun(const ExportedSpec& spec, std::vector<GraphInput> inputs)
      : loss_(spec.loss),
        has_accuracy_(spec.has_accuracy),
        may_ignore_(may_ignore(loss_, *inputs.back().part)),
        inputs_(std::move(inputs)) {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    std::vector<at::Tensor> taken = take(inputs_, inputs);
    const at::Tensor classes = taken.back().reshape({-1});
    taken.pop_back();
    const at::Tensor counts = classes.ne(loss_.ignore_index);
    if (may_ignore_ || inputs_.back().part->limit > loss_.classes) check(classes, counts);
    const at::Tensor pieces = at::stack(taken);  // [pieces, N, columns]
    const at::Tensor losses = at::logsumexp(pieces.select(2, 0), 0) - pieces.select(2, 1).sum(0);
    LayerResult result{.output = at::where(counts, losses, 0).sum(),
                       .weight = weight_of(counts, may_ignore_)};
    if (context.training || !has_accuracy_) return result;
    const at::Tensor best = at::argmax(pieces.select(2, 2), 0, /*keepdim=*/true);
    const at::Tensor guessed = pieces.select(2, 3).gather(0, best).squeeze(0).to(at::kLong);
    result.metrics = accuracy_of(guessed, classes, counts);
    return result;
  }

 private:
  /// Without this, an invalid target would give a finite, wrong loss.
  void check(const at::Tensor& classes, const at::Tensor& counts) const {
    const at::Tensor are_none = (classes.lt(0) | classes.ge(loss_.classes)).logical_and(counts);
    if (!are_none.any().item<bool>()) return;
    throw Error(fmt::format("loss: target is {}, but classes are 0 to {}",
                            classes.masked_select(are_none)[0].item<std::int64_t>(),
                            loss_.classes - 1));
  }

  ExportedLoss loss_;
  bool has_accuracy_;
  bool may_ignore_;
  std::vector<GraphInput> inputs_;
};

/// A loss that a graph computes: the mean over the virtual node.
class ExportedGraphLossRun final : public Layer {
 public:
  ExportedGraphLossRun(const ExportedSpec& spec, std::vector<GraphInput> inputs,
                       std::vector<at::Tensor> constants)
      : batch_size_(static_cast<double>(spec.batch_size)),
        inputs_(std::move(inputs)),
        constants_(std::move(constants)),
        given_{.num_values = static_cast<int>(inputs_.size() + constants_.size())},
        train_(spec.graphs[static_cast<std::size_t>(spec.loss.train)], given_, "loss, training"),
        eval_(spec.graphs[static_cast<std::size_t>(spec.loss.eval)], given_, "loss, evaluation") {}

  LayerResult forward(Tensors inputs, Tensors, const LayerContext& context) const override {
    std::vector<at::Tensor> values = take(inputs_, inputs);
    const at::Tensor first = values[0];
    append_on(inputs[0].device(), values, constants_);
    std::vector<at::Tensor> none;
    const at::Tensor mean =
        (context.training ? train_ : eval_).run(std::move(values), context, none);
    if (!mean.defined() || mean.numel() != 1) {
      throw Error("loss: its graph must give one number, the mean over the virtual node");
    }
    LayerResult result{.output = mean.reshape({}).to(at::kFloat).mul(batch_size_),
                       .weight = batch_size_};
    if (!context.training) result.prediction = first;
    return result;
  }

 private:
  double batch_size_;
  std::vector<GraphInput> inputs_;
  std::vector<at::Tensor> constants_;
  GraphProgram::Given given_;
  GraphProgram train_, eval_;
};

}  // namespace

std::unique_ptr<Layer> make_exported_layer(const ExportedSpec& spec, const ExportedLayer& layer,
                                           std::vector<GraphInput> inputs,
                                           std::vector<at::Tensor> constants) {
  return std::make_unique<ExportedLayerRun>(spec, layer, std::move(inputs), std::move(constants));
}

std::unique_ptr<Layer> make_exported_loss(const ExportedSpec& spec, std::vector<GraphInput> inputs,
                                          std::vector<at::Tensor> constants) {
  if (spec.loss.kind == ExportedLoss::Kind::graph)
    return std::make_unique<ExportedGraphLossRun>(spec, std::move(inputs), std::move(constants));
  if (spec.loss.kind == ExportedLoss::Kind::divided)
    return std::make_unique<DividedLossRun>(spec, std::move(inputs));
  return std::make_unique<ExportedLossRun>(spec, std::move(inputs));
}

}  // namespace spillway
