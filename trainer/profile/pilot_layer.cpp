#include "trainer/profile/pilot_layer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/device/kernels.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/compute/sum_term.h"
#include "trainer/profile/host_rates.h"
#include "trainer/torch/counting_allocator.h"

namespace spillway {
namespace {

/// Costs depend on no value, so a few are repeated.
void fill(std::byte* memory, const TensorSpec& tensor) {
  if (tensor.dtype == DType::i64) return;
  constexpr std::size_t kDrawn = std::size_t{1} << 14;
  std::vector<float> drawn(kDrawn);
  kernels::fill_normal(drawn.data(), kDrawn, 0.02, {});
  const auto n = static_cast<std::size_t>(tensor.elements());
  for (std::size_t i = 0; i < n; i += kDrawn) {
    const std::size_t length = std::min(kDrawn, n - i);
    if (tensor.dtype == DType::bf16) {
      kernels::narrow(reinterpret_cast<BFloat16*>(memory) + i, drawn.data(), length);
    } else {
      std::copy_n(drawn.data(), length, reinterpret_cast<float*>(memory) + i);
    }
  }
}

}  // namespace

PilotLayer::PilotLayer(const Model& model, const std::vector<int>& alike, Device* device)
    : device_(device),
      layers_{alike.front(), alike.front() + 1},
      runner_(model, layers_, context(/*training=*/true),
              [this](int) { return weights_[current_].params; }),
      evaluation_(model, layers_, context(/*training=*/false),
                  [this](int) { return weights_[current_].params; }) {
  const LayerSpec& spec = model.spec.layers[at(layers_.begin)];
  if (device_) device_memory_ = device_->allocate(device_->split().planned(device_->budget()));
  Bytes bytes = 0;
  for (int p : spec.params) {
    const ParamSpec& param = params_.emplace_back(model.spec.params[at(p)]);
    bytes += param.tensor.bytes() + param.master().bytes();
    const bool is_merged = param.has_sum() && device_ == nullptr;  // negligible on a GPU
    auto* const memory = is_merged ? new_memory(param.master()) : nullptr;
    merged_.push_back(reinterpret_cast<float*>(memory));
  }
  do {
    add_weights();
  } while (weights_.size() < alike.size() && weights_.size() * bytes < kBeyondCaches);
  // A layer whose graphs have a lease has one at a time.
  numbers_.assign(alike.begin(), alike.begin() + (spec.keeps_graph ? std::ssize(weights_) : 1));
  for (int e : spec.inputs) add_input(e, model.spec.edges[at(e)], spec);
  for (int e : spec.outputs) add_output(e, model.spec.edges[at(e)]);
  runner_.after_forward = [this](int) {
    if (after_graph) after_graph();
  };
}

void PilotLayer::add_weights() {
  Weights& weights = weights_.emplace_back();
  for (const ParamSpec& param : params_) {
    weights.params.push_back(new_memory(param.tensor));
    weights.sums.push_back(reinterpret_cast<float*>(new_memory(param.master())));
  }
}

void PilotLayer::next() { current_ = (current_ + 1) % weights_.size(); }

LayerContext PilotLayer::context(bool training) const {
  LayerContext context{.training = training};
  if (device_) {
    context.stream = device_->compute().stream();
    context.gpu = device_->gpu();
  }
  return context;
}

std::byte* PilotLayer::new_device_memory(const TensorSpec& tensor) {
  const auto staging = device_->allocate_host(round_up(tensor.bytes(), kPage));
  fill(staging->data(), tensor);
  const Bytes begin = device_used_, end = begin + round_up(tensor.bytes(), kAlignment);
  if (end > device_memory_->size()) {
    throw OutOfMemory(Tier::device, end, device_memory_->size(),
                      device_->name() + " (a layer's pilot)");
  }
  device_used_ = end;
  std::byte* const memory = device_memory_->data() + begin;
  Queue& queue = device_->host_to_device();
  queue.copy_async(memory, staging->data(), tensor.bytes());
  queue.record().wait();
  return memory;
}

std::byte* PilotLayer::new_memory(const TensorSpec& tensor) {
  if (device_) return new_device_memory(tensor);
  constexpr std::size_t kSpare = kAlignment / sizeof(float);
  auto& memory = storage_.emplace_back(tensor.bytes() / sizeof(float) + 2 * kSpare);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  auto* const aligned = reinterpret_cast<std::byte*>(round_up(address, kAlignment));
  fill(aligned, tensor);
  return aligned;
}

void PilotLayer::add_input(int number, const EdgeSpec& edge, const LayerSpec& layer) {
  inputs_[{number, {0, edge.makers}}] = new_memory(edge.tensor);
  if (!has_gradient(edge)) return;
  const int leaf = edge.reading_pieces > 1 ? layer.piece : 0;
  input_gradients_[{number, {leaf, leaf + 1}}] = new_memory(edge.tensor);
}

void PilotLayer::add_output(int number, const EdgeSpec& edge) {
  output_bytes_ += edge.tensor.bytes();
  const int term = layers_.begin - edge.producer;
  std::byte* const value = new_memory(edge.tensor);
  outputs_[{number, {term, term + 1}}] = value;
  if (!has_gradient(edge)) return;
  // No op uses an output together with its gradient, and a device may not have room for both.
  gradients_[{number, {0, edge.reading_pieces}}] = device_ ? value : new_memory(edge.tensor);
}

void PilotLayer::fold(int param, const std::byte* term) const {
  add_term(context(true).stream, weights_[current_].sums[at(param)], term,
           params_[at(param)].tensor, /*fresh=*/false);
}

void PilotLayer::merge() {
  next();
  for (std::size_t p = 0; p < merged_.size(); ++p) {
    if (!merged_[p]) continue;
    merge_sum(nullptr, merged_[p], weights_[current_].sums[p], params_[p]);
  }
}

void PilotLayer::run_forward(const RangeRunner& runner) {
  next();
  const MeterScope scope(meter(), device_ != nullptr && device_->gpu() >= 0);
  meter().begin_op(std::numeric_limits<Bytes>::max());
  runner.forward(inputs_, outputs_, &loss_);
}

void PilotLayer::forward() { run_forward(runner_); }

void PilotLayer::evaluate() { run_forward(evaluation_); }

void PilotLayer::make_graph() {
  next();
  const MeterScope scope(meter(), device_ != nullptr && device_->gpu() >= 0);
  meter().begin_op(std::numeric_limits<Bytes>::max());
  graphs_.push_back({current_, runner_.forward_with_graphs(inputs_, {})});
}

void PilotLayer::backward_of_graph() {
  const MeterScope scope(meter(), device_ != nullptr && device_->gpu() >= 0);
  Graph newest = std::move(graphs_.back());
  graphs_.pop_back();
  current_ = newest.weights;
  runner_.backward(
      std::move(newest.graphs), gradients_, input_gradients_,
      [this](int, int param, const std::byte* term) { fold(param, term); }, &loss_);
}

void PilotLayer::backward() {
  make_graph();
  backward_of_graph();
}

}  // namespace spillway
