#include "experiments/spilling/resident.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/device/kernels.h"
#include "experiments/support/virtual_node.h"
#include "trainer/compute/initialize.h"
#include "trainer/torch/counting_allocator.h"

namespace spillway::experiments {
namespace {

constexpr std::size_t kUpdateGrain = std::size_t{1} << 16;

Bytes padded(Bytes bytes) { return round_up(bytes, kAlignment); }

std::size_t elements(const ParamSpec& param) {
  return static_cast<std::size_t>(param.tensor.elements());
}

/// Weights, two moments, the slots of sums, and every edge of every virtual node twice.
Bytes room_for(const ModelSpec& model, int virtual_nodes, int num_slots) {
  Bytes params = 0, uses = 0, edges = 0;
  for (const ParamSpec& param : model.params) params += padded(param.tensor.bytes());
  for (const LayerSpec& layer : model.layers) {
    for (int p : layer.params) uses += padded(model.params[at(p)].tensor.bytes());
  }
  for (const EdgeSpec& edge : model.edges) edges += padded(edge.tensor.bytes());
  return 3 * params + static_cast<Bytes>(num_slots) * uses +
         2 * static_cast<Bytes>(virtual_nodes) * edges;
}

}  // namespace

ResidentTrainer::ResidentTrainer(const TrialConfig& trial, const std::vector<LayerRange>& shards,
                                 Order order)
    : trial_(trial),
      model_(trial.model(trial.train.batch_size / trial.train.virtual_nodes)),
      shards_(shards),
      cut_(model_->spec, shards_),
      fold_(plan_fold({0, trial.train.reduction_groups}, trial.train.reduction_groups,
                      trial.train.virtual_nodes / trial.train.reduction_groups)),
      memory_(room_for(model_->spec, trial.train.virtual_nodes, fold_.num_slots), Tier::host,
              "resident"),
      losses_(at(trial.train.virtual_nodes)),
      squared_norms_(model_->spec.params.size()) {
  initialize_torch();
  static const KeptMemory kept;  // as in a session
  add_ops(order);
  place_state();
  place_edges();
}

void ResidentTrainer::add_ops(Order order) {
  const int num_shards = static_cast<int>(shards_.size()), vns = trial_.train.virtual_nodes;
  const auto pass = [&](int first_vn, int end_vn) {
    for (int s = 0; s + 1 < num_shards; ++s) {
      for (int vn = first_vn; vn < end_vn; ++vn) ops_.push_back({s, vn, false});
    }
    for (int s = num_shards - 1; s >= 0; --s) {
      for (int vn = first_vn; vn < end_vn; ++vn) ops_.push_back({s, vn, true});
    }
  };
  if (order == Order::shard_by_shard) return pass(0, vns);
  for (int vn = 0; vn < vns; ++vn) pass(vn, vn + 1);
}

float* ResidentTrainer::take(Bytes bytes) {
  std::byte* data = memory_.data() + used_;
  used_ += padded(bytes);
  return reinterpret_cast<float*>(data);
}

void ResidentTrainer::place_state() {
  const ModelSpec& spec = model_->spec;
  for (std::size_t p = 0; p < spec.params.size(); ++p) {
    const Bytes bytes = spec.params[p].tensor.bytes();
    params_.push_back({.weights = take(bytes), .moments = {take(bytes), take(bytes)}});
    initialize(params_.back().weights, spec.params[p], trial_.train.seed, p);
  }
  for (const LayerSpec& layer : spec.layers) {
    sum_offsets_.push_back(slot_size_);
    use_offsets_.emplace_back();
    for (int p : layer.params) {
      use_offsets_.back().push_back(slot_size_ - sum_offsets_.back());
      slot_size_ += padded(spec.params[at(p)].tensor.bytes()) / sizeof(float);
    }
  }
  sums_ = take(static_cast<Bytes>(fold_.num_slots) * slot_size_ * sizeof(float));
  const int root = fold_.roots.front().second;
  for (int l = 0; l < static_cast<int>(spec.layers.size()); ++l) {
    const auto& params = spec.layers[at(l)].params;
    for (std::size_t i = 0; i < params.size(); ++i) {
      params_[at(params[i])].gradient = sum_of(root, l) + use_offsets_[at(l)][i];
    }
  }
}

void ResidentTrainer::place_edges() {
  const auto bytes_of = [&](int e) { return model_->spec.edges[at(e)].tensor.bytes(); };
  for (int vn = 0; vn < trial_.train.virtual_nodes; ++vn) {
    edges_.emplace_back();
    gradients_.emplace_back();
    const auto place = [&](RangeRunner::EdgeMemory& memory, int e) {
      memory[{e, {}}] = reinterpret_cast<std::byte*>(take(bytes_of(e)));
    };
    place(edges_.back(), batch_edge(model_->spec));
    for (int s = 0; s < static_cast<int>(shards_.size()); ++s) {
      for (int e : cut_.boundaries(s).out) {
        place(edges_.back(), e);
        place(gradients_.back(), e);
      }
    }
  }
}

void ResidentTrainer::load() {
  for (int vn = 0; vn < trial_.train.virtual_nodes; ++vn) {
    read_samples(trial_, step_, vn, edges_[at(vn)].at({batch_edge(model_->spec), {}}));
  }
}

void ResidentTrainer::compute(const Op& op) {
  const LayerRange layers = shards_[at(op.shard)];
  const LayerContext context{.random = {trial_.train.seed, static_cast<std::uint32_t>(step_),
                                        static_cast<std::uint32_t>(op.vn), 0}};
  const auto weights = [&](int layer) {
    std::vector<std::byte*> pointers;
    for (int p : model_->spec.layers[at(layer)].params) {
      pointers.push_back(reinterpret_cast<std::byte*>(params_[at(p)].weights));
    }
    return pointers;
  };
  const RangeRunner runner(*model_, layers, context, weights);
  const Boundaries& boundaries = cut_.boundaries(op.shard);
  auto inputs = some_of(edges_[at(op.vn)], boundaries.in);
  inputs[{batch_edge(model_->spec), {}}] = edges_[at(op.vn)].at({batch_edge(model_->spec), {}});
  if (!op.backward) {
    runner.forward(inputs, some_of(edges_[at(op.vn)], boundaries.out), nullptr);
    return;
  }
  const auto fold = [&](int layer, int param, const std::byte* value) {
    fold_gradient(op.vn, layer, param, reinterpret_cast<const float*>(value));
  };
  double loss = 0;
  const double weight = runner.backward(inputs, some_of(gradients_[at(op.vn)], boundaries.out),
                                        some_of(gradients_[at(op.vn)], boundaries.in), fold, &loss);
  if (layers.end == static_cast<int>(model_->layers.size())) losses_[at(op.vn)] = {loss, weight};
  merge_sums(op.shard, op.vn);
}

void ResidentTrainer::fold_gradient(int vn, int layer, int param, const float* value) {
  const FoldStep& step = fold_.steps[at(vn)];
  float* sum = sum_of(step.slot, layer) + use_offsets_[at(layer)][at(param)];
  const int number = model_->spec.layers[at(layer)].params[at(param)];
  const std::size_t n = elements(model_->spec.params[at(number)]);
  if (step.fresh) {
    value ? std::copy_n(value, n, sum) : std::fill_n(sum, n, 0.0f);
  } else if (value) {
    kernels::add(sum, value, n);
  }
}

void ResidentTrainer::merge_sums(int shard, int vn) {
  const auto [begin, end] = shards_[at(shard)];
  const std::size_t last = at(end) < sum_offsets_.size() ? sum_offsets_[at(end)] : slot_size_;
  for (const FoldStep::Merge& merge : fold_.steps[at(vn)].merges) {
    kernels::add(sum_of(merge.into, begin), sum_of(merge.from, begin),
                 last - sum_offsets_[at(begin)]);
  }
}

/// Finishes tied gradients and computes the norms.
void ResidentTrainer::reduce() {
  const ModelSpec& spec = model_->spec;
  const int root = fold_.roots.front().second;
  for (int l = static_cast<int>(spec.layers.size()) - 1; l >= 0; --l) {
    const auto& params = spec.layers[at(l)].params;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const float* use = sum_of(root, l) + use_offsets_[at(l)][i];
      float* sum = const_cast<float*>(gradient_of(params[i]));
      if (use != sum) kernels::add(sum, use, elements(spec.params[at(params[i])]));
    }
  }
  tbb::parallel_for(std::size_t{0}, spec.params.size(), [&](std::size_t p) {
    squared_norms_[p] =
        kernels::squared_norm(gradient_of(static_cast<int>(p)), elements(spec.params[p]));
  });
}

double ResidentTrainer::commit() {
  const auto loss = fold(std::span<const WeightedSum>(losses_), trial_.train.reduction_groups);
  double squared = 0;
  for (double norm : squared_norms_) squared += norm;
  mean_losses_.push_back(loss.mean());
  const double norm = std::sqrt(squared) / loss.weight;
  return clip_coefficient(norm, trial_.train.max_grad_norm) / loss.weight;
}

void ResidentTrainer::update(double gradient_scale) {
  tbb::parallel_for(std::size_t{0}, params_.size(), [&](std::size_t p) {
    const ParamSpec& param = model_->spec.params[p];
    const UpdateRule rule = update_rule(trial_.train, step_, param, gradient_scale);
    const std::size_t n = elements(param);
    tbb::parallel_for(std::size_t{0}, (n + kUpdateGrain - 1) / kUpdateGrain, [&](std::size_t i) {
      const std::size_t begin = i * kUpdateGrain;
      apply_update(params_[p], begin, std::min(n, begin + kUpdateGrain), rule);
    });
  });
}

std::vector<double> ResidentTrainer::run() {
  std::vector<double> commits_s;
  for (; step_ < trial_.train.max_steps; ++step_) {
    load();
    for (const Op& op : ops_) compute(op);
    reduce();
    const double scale = commit();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    commits_s.push_back(std::chrono::duration<double>(now).count());
    update(scale);
  }
  return commits_s;
}

}  // namespace spillway::experiments
