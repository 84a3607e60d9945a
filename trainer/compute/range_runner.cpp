#include "trainer/compute/range_runner.h"

#include <fmt/format.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "core/device/kernels.h"
#include "models/base/compute_type.h"
#include "models/base/reason.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/torch/torch_gpu.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {
namespace {

/// A tensor over memory that it does not own. LibTorch only reads it.
at::Tensor view_of(const std::byte* data, const TensorSpec& spec, int gpu) {
  const c10::Device device = torch_device(gpu);
  return at::for_blob(const_cast<std::byte*>(data), spec.shape())
      .target_device(device)
      .options(at::TensorOptions(device).dtype(scalar_type(spec.dtype)))
      .make_tensor();
}

/// Thread-local state of an op, set when it begins, never inherited from another thread.
class OpScope {
 public:
  explicit OpScope(bool grad) : grad_(grad) {
    initialize_torch_thread();
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }

 private:
  c10::AutoGradMode grad_;
};

/// Whether all strides are those of a new tensor. is_contiguous() ignores those of dimensions with
/// one element.
bool has_plain_strides(const at::Tensor& tensor) {
  std::int64_t stride = 1;
  for (auto d = tensor.dim(); d-- > 0; stride *= tensor.size(d)) {
    if (tensor.stride(d) != stride) return false;
  }
  return true;
}

/// The tensor as it is when it has crossed a cut: without gaps, and aligned like a buffer. Both
/// decide which kernels later layers run, and so their bits. Nor does it keep more memory than its
/// own, which plans do not count.
at::Tensor as_at_cut(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  const auto address = reinterpret_cast<std::uintptr_t>(dense.const_data_ptr());
  const bool is_view = address % kAlignment != 0 || !has_plain_strides(dense) ||
                       dense.storage().nbytes() > dense.nbytes();
  return is_view ? dense.clone(at::MemoryFormat::Contiguous) : dense;
}

void copy_out(void* stream, void* to, const at::Tensor& from) {
  const at::Tensor contiguous = from.contiguous();
  kernels::copy(stream, to, contiguous.const_data_ptr(), contiguous.nbytes());
}

void check_type(const LayerSpec& layer, DType dtype, const at::Tensor& output) {
  if (output.scalar_type() == scalar_type(dtype)) return;
  throw Error(fmt::format("layer {} returned {}, but its output must be {}", layer.name,
                          c10::toString(output.scalar_type()), c10::toString(scalar_type(dtype))));
}

/// Spillway's own errors pass unchanged; the layer's name is added to all others.
template <typename Work>
auto run_for(const LayerSpec& layer, const Work& work) {
  try {
    return work();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(fmt::format("layer {}: {}", layer.name, reason_of(error)));
  }
}

const std::byte* bytes_of(const at::Tensor& contiguous) {
  return static_cast<const std::byte*>(contiguous.const_data_ptr());
}

}  // namespace

RangeRunner::EdgeSums RangeRunner::views_of(const EdgeMemory& memory, int EdgeSpec::*leaves) const {
  EdgeSums sums;
  for (const auto& [part, data] : memory) {
    const EdgeSpec& edge = model_.spec.edges[at(part.edge)];
    const auto sum = sums.try_emplace(part.edge, edge.*leaves).first;
    sum->second.add(part.pieces, view_of(data, edge.tensor, context_.gpu));
  }
  return sums;
}

void RangeRunner::add_output(int layer, const at::Tensor& output, EdgeSums& values) const {
  const int made = output_of(layer);
  const EdgeSpec& edge = model_.spec.edges[at(made)];
  const int term = layer - edge.producer;
  values.try_emplace(made, edge.makers).first->second.add({term, term + 1}, output.detach());
}

/// Layers come in reverse, so an edge that is not read by pieces has one order of additions.
void RangeRunner::add_input_gradient(int layer, int edge, at::Tensor gradient,
                                     EdgeSums& gradients) const {
  const int leaves = model_.spec.edges[at(edge)].reading_pieces;
  const int leaf = leaves > 1 ? model_.spec.layers[at(layer)].piece : 0;
  gradients.try_emplace(edge, leaves).first->second.add({leaf, leaf + 1}, std::move(gradient));
}

void RangeRunner::copy_parts(int edge, const EdgeSums& from, const EdgeMemory& to) const {
  for (const auto& [pieces, value] : from.at(edge).parts()) {
    const auto place = to.find({edge, pieces});
    if (place != to.end()) copy_out(context_.stream, place->second, value);
  }
}

at::Tensor RangeRunner::take_gradient(int layer, EdgeSums& gradients) const {
  const auto sum = gradients.find(output_of(layer));
  if (sum == gradients.end()) return {};
  at::Tensor gradient = sum->second.whole();
  const int producer = model_.spec.edges[at(sum->first)].producer;
  if (layer == std::max(producer, layers_.begin)) gradients.erase(sum);  // no more makers
  return gradient;
}

std::map<int, int> RangeRunner::count_readers() const {
  std::map<int, int> readers;
  for (int l = layers_.begin; l < layers_.end; ++l) {
    for (int e : model_.spec.layers[at(l)].inputs) ++readers[e];
  }
  return readers;
}

int RangeRunner::output_of(int layer) const {
  const auto& outputs = model_.spec.layers[at(layer)].outputs;
  return outputs.empty() ? -1 : outputs.front();
}

RangeRunner::LayerRun RangeRunner::run_layer(int layer, const EdgeSums& values,
                                             bool with_graph) const {
  const LayerSpec& spec = model_.spec.layers[at(layer)];
  LayerRun run;
  const std::vector<std::byte*> pointers = parameters_(layer);
  for (std::size_t p = 0; p < spec.params.size(); ++p) {
    const ParamSpec& param = model_.spec.params[at(spec.params[p])];
    run.params.push_back(view_of(pointers[p], param.tensor, context_.gpu));
    if (with_graph) run.params.back().requires_grad_(param.trainable);
  }
  for (int e : spec.inputs) {
    run.inputs.push_back(values.at(e).whole().detach());
    if (with_graph) run.inputs.back().requires_grad_(has_gradient(model_.spec.edges[at(e)]));
  }
  LayerContext context = context_;
  context.random.stream =
      static_cast<std::uint32_t>(spec.draws_as < 0 ? layer : spec.draws_as) * 16;
  if (const int made = output_of(layer); made >= 0) {
    context.dtype = model_.spec.edges[at(made)].tensor.dtype;
  }
  run.result = run_for(
      spec, [&] { return model_.layers[at(layer)]->forward(run.inputs, run.params, context); });
  if (run.result.lease && spec.keeps_graph) {
    throw Error(fmt::format(
        "layer {} returned a lease; set LayerSpec::keeps_graph of the layer to false", spec.name));
  }
  run.result.output = as_at_cut(run.result.output);
  if (const int made = output_of(layer); made >= 0) {
    check_type(spec, model_.spec.edges[at(made)].tensor.dtype, run.result.output);
  }
  return run;
}

void warm_up_thread(Bytes activations) {
  constexpr Bytes kKept = 32_MiB, kBlock = 256_KiB;
  const OpScope scope(true);
  const at::Tensor x = at::ones({32, 32}).requires_grad_();
  torch::autograd::grad({at::mm(x, x).sum()}, {x});
  std::vector<at::Tensor> blocks;
  while (blocks.size() * kBlock < std::min(activations, kKept)) {
    blocks.push_back(at::zeros(static_cast<std::int64_t>(kBlock), at::kByte));
  }
}

double RangeRunner::take_loss(const LayerRun& run, double* loss) const {
  if (layers_.end < static_cast<int>(model_.layers.size())) return 0;
  copy_out(context_.stream, loss, run.result.output.to(at::kDouble));
  return run.result.weight;
}

void RangeRunner::take_metrics(const LayerRun& run, std::span<double* const> metrics) const {
  if (metrics.empty()) return;
  const at::Tensor& sums = run.result.metrics;
  const auto num_given = sums.defined() ? sums.numel() : 0;
  if (num_given != std::ssize(metrics)) {
    throw Error(fmt::format("layer {} gives {} sums of metrics, but the model has {}",
                            model_.spec.layers.back().name, num_given, metrics.size()));
  }
  const at::Tensor values = sums.to(at::kDouble).contiguous();
  const auto* value = values.const_data_ptr<double>();
  for (double* place : metrics) kernels::copy(context_.stream, place, value++, sizeof(double));
}

double RangeRunner::forward(const EdgeMemory& inputs, const EdgeMemory& outputs, double* loss,
                            std::span<double* const> metrics) const {
  const OpScope scope(false);
  EdgeSums values = views_of(inputs, &EdgeSpec::makers);
  std::map<int, int> readers = count_readers();
  for (int l = layers_.begin; l < layers_.end; ++l) {
    LayerRun run = run_layer(l, values, false);
    const int made = output_of(l);
    if (made < 0) {
      take_metrics(run, metrics);
      const at::Tensor& prediction = run.result.prediction;
      if (take_prediction) take_prediction(prediction.defined() ? prediction : run.inputs[0]);
      return take_loss(run, loss);
    }
    for (int e : model_.spec.layers[at(l)].inputs) {
      if (--readers[e] == 0) values.erase(e);
    }
    add_output(l, std::exchange(run.result.output, {}), values);
    const int end_of_makers = model_.spec.edges[at(made)].end_of_makers();
    if (l + 1 != std::min(end_of_makers, layers_.end)) continue;
    copy_parts(made, values, outputs);
    if (readers[made] == 0) values.erase(made);
  }
  return 0;
}

std::vector<at::Tensor> RangeRunner::run_backward(int layer, LayerRun run,
                                                  const at::Tensor& gradient,
                                                  const TakeTerm& take) const {
  std::vector<at::Tensor> leaves;
  const auto& params = run.result.leaves.empty() ? run.params : run.result.leaves;
  for (const auto* tensors : {&params, &std::as_const(run.inputs)}) {
    std::ranges::copy_if(*tensors, std::back_inserter(leaves),
                         [](const at::Tensor& t) { return t.requires_grad(); });
  }
  std::vector<at::Tensor> gradients(leaves.size());
  const bool has_backward = output_of(layer) < 0 || gradient.defined();
  if (has_backward && !leaves.empty() && run.result.output.requires_grad()) {
    gradients = run_for(model_.spec.layers[at(layer)], [&] {
      return torch::autograd::grad({run.result.output}, leaves, {gradient},
                                   /*retain_graph=*/false, /*create_graph=*/false,
                                   /*allow_unused=*/true);
    });
  }
  run.result = {};
  auto next = gradients.begin();
  for (std::size_t p = 0; p < run.params.size(); ++p) {
    if (!run.params[p].requires_grad()) continue;
    const at::Tensor dense = next->defined() ? next->contiguous() : at::Tensor();
    take(layer, static_cast<int>(p), dense.defined() ? bytes_of(dense) : nullptr);
    (next++)->reset();
  }
  std::vector<at::Tensor> of_inputs;
  for (const at::Tensor& input : run.inputs) {
    of_inputs.emplace_back();
    if (!input.requires_grad()) continue;
    of_inputs.back() = next->defined() ? as_at_cut(*next) : at::zeros_like(input);
    (next++)->reset();
  }
  return of_inputs;
}

void RangeRunner::take_observations(int layer, LayerResult& result, const TakeTerm& take) const {
  const LayerSpec& spec = model_.spec.layers[at(layer)];
  std::size_t next = 0;
  for (std::size_t p = 0; p < spec.params.size(); ++p) {
    if (!model_.spec.params[at(spec.params[p])].is_observed()) continue;
    const at::Tensor observation = result.observations.at(next++).contiguous();
    take(layer, static_cast<int>(p), bytes_of(observation));
  }
  result.observations.clear();
}

RangeRunner::Graphs RangeRunner::forward_with_graphs(const EdgeMemory& inputs,
                                                     const EdgeMemory& outputs) const {
  const OpScope scope(true);
  Graphs runs;
  EdgeSums values = views_of(inputs, &EdgeSpec::makers);
  for (int l = layers_.begin; l < layers_.end; ++l) {
    runs.push_back(run_layer(l, values, true));
    for (int e : model_.spec.layers[at(l)].inputs) {
      if (model_.spec.edges[at(e)].makers > 1) values.erase(e);  // the run has the sum
    }
    if (after_forward) after_forward(l);
    const int made = output_of(l);
    if (made < 0) break;
    add_output(l, runs.back().result.output, values);
    const int end_of_makers = model_.spec.edges[at(made)].end_of_makers();
    if (l + 1 == std::min(end_of_makers, layers_.end)) copy_parts(made, values, outputs);
  }
  return runs;
}

double RangeRunner::backward(Graphs runs, const EdgeMemory& gradient_memory,
                             const EdgeMemory& input_gradients, const TakeTerm& take,
                             double* loss) const {
  const OpScope scope(true);
  for (int l = layers_.begin; l < layers_.end; ++l) {
    take_observations(l, runs[at(l - layers_.begin)].result, take);
  }
  const double weight = take_loss(runs.back(), loss);
  EdgeSums gradients = views_of(gradient_memory, &EdgeSpec::reading_pieces);
  std::map<int, int> readers = count_readers();
  for (int l = layers_.end - 1; l >= layers_.begin; --l) {
    const at::Tensor gradient = take_gradient(l, gradients);
    std::vector<at::Tensor> of_inputs = run_backward(l, std::move(runs.back()), gradient, take);
    runs.pop_back();
    for (std::size_t i = 0; i < of_inputs.size(); ++i) {
      if (!of_inputs[i].defined()) continue;
      const int e = model_.spec.layers[at(l)].inputs[i];
      add_input_gradient(l, e, std::move(of_inputs[i]), gradients);
      if (--readers[e] > 0) continue;
      const EdgeSpec& edge = model_.spec.edges[at(e)];
      if (edge.producer < layers_.begin) copy_parts(e, gradients, input_gradients);
      if (edge.end_of_makers() <= layers_.begin) gradients.erase(e);
    }
  }
  return weight;
}

}  // namespace spillway
