#include "trainer/range_runner.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <utility>

#include "core/ids.h"
#include "scheduler/layout.h"

namespace spillway {
namespace {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::i64:
      return at::kLong;
  }
  return at::kFloat;
}

/// A tensor over memory that it does not own. LibTorch only reads it.
at::Tensor view_of(const std::byte* data, const TensorSpec& spec) {
  return at::from_blob(const_cast<std::byte*>(data), spec.shape(),
                       at::TensorOptions().dtype(scalar_type(spec.dtype)));
}

/// Thread-local state of an op, set at its entry: never inherited from another thread.
class OpScope {
 public:
  explicit OpScope(bool grad) : grad_(grad) {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }

 private:
  c10::AutoGradMode grad_;
};

void copy_out(std::byte* to, const at::Tensor& from) {
  const at::Tensor contiguous = from.contiguous();
  std::memcpy(to, contiguous.data_ptr(), contiguous.nbytes());
}

}  // namespace

at::Tensor RangeRunner::boundary(int cut, const std::byte* data) const {
  return view_of(data, boundary_edge(model_.spec, cut).tensor);
}

at::Tensor RangeRunner::batch(const std::byte* data) const {
  return data ? view_of(data, batch_edge(model_.spec).tensor) : at::Tensor();
}

RangeRunner::LayerRun RangeRunner::run_layer(int layer, const at::Tensor& input,
                                             const at::Tensor& batch, bool with_graph) const {
  const LayerSpec& spec = model_.spec.layers[at(layer)];
  LayerRun run;
  run.input = input;
  const std::vector<std::byte*> pointers = parameters_(layer);
  for (std::size_t p = 0; p < spec.params.size(); ++p) {
    const ParamSpec& param = model_.spec.params[at(spec.params[p])];
    run.params.push_back(view_of(pointers[p], param.tensor));
    if (with_graph) run.params.back().requires_grad_(param.trainable);
  }
  std::vector<at::Tensor> inputs;
  for (int edge : spec.inputs) {
    inputs.push_back(model_.spec.edges[at(edge)].producer < 0 ? batch : run.input);
  }
  LayerContext context = context_;
  context.random.stream = static_cast<std::uint32_t>(layer) * 16;
  run.result = model_.layers[at(layer)]->forward(inputs, run.params, context);
  run.result.output = run.result.output.contiguous();  // as it would be behind a cut
  return run;
}

WeightedSum RangeRunner::loss_of(const LayerRun& run) const {
  if (layers_.end < static_cast<int>(model_.layers.size())) return {};
  return {run.result.output.item<double>(), run.result.weight};
}

WeightedSum RangeRunner::forward(const std::byte* input, const std::byte* batch_data,
                                 std::byte* output) const {
  const OpScope scope(false);
  const at::Tensor batch_view = batch(batch_data);
  at::Tensor x = input ? boundary(layers_.begin, input) : at::Tensor();
  for (int l = layers_.begin; l < layers_.end; ++l) {
    LayerRun run = run_layer(l, x, batch_view, false);
    if (l + 1 == layers_.end && !output) return loss_of(run);
    x = std::move(run.result.output);
  }
  copy_out(output, x);
  return {};
}

WeightedSum RangeRunner::backward(const std::byte* input, const std::byte* batch_data,
                                  const std::byte* output_gradient, std::byte* input_gradient,
                                  const TakeGradient& take) const {
  const OpScope scope(true);
  const at::Tensor batch_view = batch(batch_data);
  std::vector<LayerRun> runs;
  at::Tensor x = input ? boundary(layers_.begin, input) : at::Tensor();
  for (int l = layers_.begin; l < layers_.end; ++l) {
    if (x.defined()) x = x.detach().requires_grad_();
    runs.push_back(run_layer(l, x, batch_view, true));
    x = runs.back().result.output;
    if (after_forward) after_forward(l);
  }
  x.reset();
  const WeightedSum loss = loss_of(runs.back());
  at::Tensor gradient = output_gradient ? boundary(layers_.end, output_gradient) : at::Tensor();
  for (int l = layers_.end - 1; l >= layers_.begin; --l) {
    LayerRun run = std::move(runs.back());
    runs.pop_back();
    std::vector<at::Tensor> leaves;
    std::vector<int> trained;
    const std::vector<at::Tensor>& params =
        run.result.leaves.empty() ? run.params : run.result.leaves;
    for (std::size_t p = 0; p < params.size(); ++p) {
      if (!run.params[p].requires_grad()) continue;
      leaves.push_back(params[p]);
      trained.push_back(static_cast<int>(p));
    }
    if (run.input.defined()) leaves.push_back(run.input);
    if (leaves.empty()) break;  // the first layer, with nothing to train
    std::vector<at::Tensor> gradients =
        torch::autograd::grad({run.result.output}, leaves, {gradient}, /*retain_graph=*/false,
                              /*create_graph=*/false, /*allow_unused=*/true);
    run.result = {};
    for (std::size_t i = 0; i < trained.size(); ++i) {
      const at::Tensor dense = gradients[i].defined() ? gradients[i].contiguous() : at::Tensor();
      take(l, trained[i], dense.defined() ? dense.const_data_ptr<float>() : nullptr);
      gradients[i].reset();
    }
    gradient = run.input.defined() ? gradients.back().contiguous() : at::Tensor();
  }
  if (input_gradient) copy_out(input_gradient, gradient);
  return loss;
}

}  // namespace spillway
