#include "experiments/gpu_gpt/resident.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <tbb/parallel_for.h>

#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "experiments/support/virtual_node.h"
#include "models/base/compute_type.h"
#include "trainer/compute/initialize.h"
#include "trainer/compute/optimizer.h"
#include "trainer/compute/run_on.h"
#include "trainer/compute/sum_term.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/torch_gpu.h"
#include "trainer/torch/torch_threads.h"

namespace spillway::experiments {
namespace {

std::unique_ptr<Model> model_of(const TrialConfig& trial) {
  auto model = trial.model(trial.train.batch_size / trial.train.virtual_nodes);
  if (trial.train.dtype == FloatType::bf16) compute_with(model->spec, DType::bf16);
  return model;
}

Bytes room_of(const TensorSpec& tensor) { return round_up(tensor.bytes(), kAlignment); }

/// The batch, and every edge twice.
Bytes room_of_edges(const ModelSpec& model) {
  Bytes bytes = 0;
  for (const EdgeSpec& edge : model.edges) bytes += 2 * room_of(edge.tensor);
  return bytes;
}

std::unique_ptr<Device> make_device(DeviceKind kind, Bytes edges, Bytes activations) {
  const MemorySplit split{.activation_share = 0.5};
  const Bytes budget = round_up(split.needed(edges, activations), kPage);
  if (kind == DeviceKind::cpu) return make_cpu_device("resident", budget, {.split = split});
  load_torch_gpu();
  return make_cuda_device("resident", 0, budget, split);
}

template <typename T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

}  // namespace

Resident::Resident(TrialConfig trial, const std::vector<LayerRange>& shards, DeviceKind kind,
                   Bytes activations)
    : trial_(std::move(trial)),
      model_(model_of(trial_)),
      shards_(shards),
      cut_(model_->spec, shards_),
      device_(make_device(kind, room_of_edges(model_->spec), activations)),
      edge_memory_(device_->allocate(room_of_edges(model_->spec))),
      batch_(
          device_->allocate_host(at(trial_.train.virtual_nodes) *
                                 room_of(model_->spec.edges[at(batch_edge(model_->spec))].tensor))),
      losses_(device_->allocate_host(at(trial_.train.virtual_nodes) * sizeof(double))) {
  std::byte* place = edge_memory_->data();
  for (std::size_t e = 0; e < model_->spec.edges.size(); ++e) {
    for (RangeRunner::EdgeMemory* memory : {&edges_, &edge_gradients_}) {
      (*memory)[{static_cast<int>(e), {}}] =
          std::exchange(place, place + room_of(model_->spec.edges[e].tensor));
    }
  }
  run_on(*device_, [&] {
    if (device_->gpu() >= 0) bind_torch_thread(device_->gpu(), device_->compute().stream());
    initialize_torch_thread();
    place_state();
  });
}

Resident::~Resident() {
  run_on(*device_, [&] { params_.clear(); });
}

void Resident::place_state() {
  std::vector<at::Tensor> starts(model_->spec.params.size());
  tbb::parallel_for(std::size_t{0}, starts.size(), [&](std::size_t p) {
    const ParamSpec& spec = model_->spec.params[p];
    starts[p] = at::empty(spec.tensor.shape(), at::kFloat);
    initialize(data_of<float>(starts[p]), spec, trial_.train.seed, p);
  });
  for (std::size_t p = 0; p < model_->spec.params.size(); ++p) {
    const ParamSpec& spec = model_->spec.params[p];
    const at::Tensor start = std::exchange(starts[p], {});
    const at::TensorOptions here = at::TensorOptions(torch_device(device_->gpu()));
    const bool is_narrow = spec.tensor.dtype == DType::bf16;
    Param& param = params_.emplace_back();
    param.master = start.to(here.dtype(at::kFloat));
    param.weight = is_narrow ? param.master.to(at::kBFloat16) : param.master;
    for (at::Tensor* plane : {&param.gradient, &param.mean, &param.square}) {
      *plane = at::zeros(start.sizes(), here.dtype(at::kFloat));
    }
    param.steps = at::zeros({}, here.dtype(at::kFloat));
  }
}

void Resident::load(int vn) {
  const int edge = batch_edge(model_->spec);
  const TensorSpec& tensor = model_->spec.edges[at(edge)].tensor;
  std::byte* const rows = batch_->data() + at(vn) * room_of(tensor);
  read_samples(trial_, step_, vn, rows);
  kernels::copy(device_->compute().stream(), edges_.at({edge, {}}), rows, tensor.bytes());
}

void Resident::add_gradient(int layer, int param, const std::byte* term) {
  const int number = model_->spec.layers[at(layer)].params[at(param)];
  Param& state = params_[at(number)];
  add_term(device_->compute().stream(), data_of<float>(state.gradient), term,
           model_->spec.params[at(number)].tensor, std::exchange(state.is_fresh, false));
}

/// A backward if `loss` is given, to which the loss layer writes; returns the loss's weight.
double Resident::run_shard(int shard, const RangeRunner& runner, double* loss) {
  const Boundaries& boundaries = cut_.boundaries(shard);
  auto inputs = some_of(edges_, boundaries.in);
  inputs[{batch_edge(model_->spec), {}}] = edges_.at({batch_edge(model_->spec), {}});
  if (!loss) return runner.forward(inputs, some_of(edges_, boundaries.out), nullptr);
  const auto take = [this](int layer, int param, const std::byte* term) {
    add_gradient(layer, param, term);
  };
  // A GPT is a chain: a boundary has one reader.
  return runner.backward(inputs, some_of(edge_gradients_, boundaries.out),
                         some_of(edge_gradients_, boundaries.in), take, loss);
}

/// Forward to the last shard, then backward. Returns the weight of the loss, which is written in
/// stream order.
double Resident::take_through(int vn, double* loss) {
  load(vn);
  const LayerContext context{.random = {trial_.train.seed, static_cast<std::uint32_t>(step_),
                                        static_cast<std::uint32_t>(vn), 0},
                             .stream = device_->compute().stream(),
                             .gpu = device_->gpu()};
  const auto weights = [this](int layer) {
    std::vector<std::byte*> pointers;
    for (int p : model_->spec.layers[at(layer)].params) {
      pointers.push_back(data_of<std::byte>(params_[at(p)].weight));
    }
    return pointers;
  };
  const int last = static_cast<int>(shards_.size()) - 1;
  double weight = 0;
  for (int i = 0; i <= 2 * last; ++i) {
    const int shard = i < last ? i : 2 * last - i;
    const RangeRunner runner(*model_, shards_[at(shard)], context, weights);
    weight += run_shard(shard, runner, i < last ? nullptr : loss);
  }
  return weight;
}

/// Clips by the norm of all gradients and applies them, without reading a number from the device.
void Resident::update(double weight) {
  std::vector<at::Tensor> weights, masters, gradients, means, squares, steps;
  for (Param& param : params_) {
    param.steps.add_(1);
    param.is_fresh = true;
    weights.push_back(param.weight);
    masters.push_back(param.master);
    gradients.push_back(param.gradient);
    means.push_back(param.mean);
    squares.push_back(param.square);
    steps.push_back(param.steps);
  }
  const TrainConfig& train = trial_.train;
  at::Tensor divisor = at::full({}, weight, gradients[0].options());
  if (train.max_grad_norm > 0) {
    const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients)));
    divisor = divisor * ((norm / weight + 1e-6) / train.max_grad_norm).clamp_min(1);
  }
  at::_fused_adamw_(masters, gradients, means, squares, /*max_exp_avg_sqs=*/{}, steps,
                    learning_rate_at(train, step_), train.adam_beta1, train.adam_beta2,
                    train.weight_decay, train.adam_epsilon, /*amsgrad=*/false, /*maximize=*/false,
                    divisor, at::zeros_like(divisor));
  if (!weights[0].is_same(masters[0])) at::_foreach_copy_(weights, masters);
}

void Resident::step() {
  auto* const sums = reinterpret_cast<double*>(losses_->data());
  double weight = 0;
  run_on(*device_, [&] {
    const c10::NoGradGuard no_graph;
    const MeterScope scope(device_->activations(), device_->gpu() >= 0);
    device_->activations().begin_op(std::numeric_limits<Bytes>::max());
    for (int vn = 0; vn < trial_.train.virtual_nodes; ++vn) {
      weight += take_through(vn, sums + vn);
    }
    update(weight);
  });
  loss_ = std::accumulate(sums, sums + trial_.train.virtual_nodes, 0.0) / weight;
  ++step_;
}

double Resident::run() {
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin;
  while (step_ < trial_.train.max_steps) {
    if (step_ == 2) begin = Clock::now();
    step();
  }
  return std::chrono::duration<double>(Clock::now() - begin).count() /
         static_cast<double>(step_ - 2);
}

}  // namespace spillway::experiments
