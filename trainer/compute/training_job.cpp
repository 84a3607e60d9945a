#include "trainer/compute/training_job.h"

#include <fmt/format.h>

#include <ATen/ops/empty.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/device/kernels.h"
#include "core/spec/stored_tensor.h"
#include "models/data/sample_check.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/compute/initialize.h"
#include "trainer/compute/optimizer.h"
#include "trainer/compute/sum_term.h"
#include "trainer/torch/torch_gpu.h"
#include "trainer/torch/torch_threads.h"

namespace spillway {
namespace {

float* floats(std::byte* data) { return reinterpret_cast<float*>(data); }
const float* floats(const std::byte* data) { return reinterpret_cast<const float*>(data); }

void* stream_of(const OpCall& call) { return call.device->compute().stream(); }

/// Writes the norm of a packed sum on the device to host memory, in the order of the stream.
void take_norm(Device& device, double* norm, const std::byte* sum, const TensorSpec& tensor) {
  const auto n = static_cast<std::size_t>(tensor.elements());
  kernels::Stream stream = device.compute().stream();
  // The next owner of its memory computes later in the stream.
  const at::Tensor room =
      at::empty({static_cast<std::int64_t>(1 + kernels::num_norm_chunks(n))},
                at::TensorOptions(torch_device(device.gpu())).dtype(at::kDouble));
  auto* const there = room.mutable_data_ptr<double>();
  if (tensor.dtype == DType::bf16) {
    kernels::squared_norm(stream, there, there + 1, reinterpret_cast<const BFloat16*>(sum), n);
  } else {
    kernels::squared_norm(stream, there, there + 1, floats(sum), n);
  }
  kernels::copy(stream, norm, there, sizeof(double));
}

/// None if the op does not compute the loss.
OpRunner::Keep keep_loss(std::vector<WeightedSum>& losses, int vn, const double* sum,
                         double weight) {
  if (!sum) return {};
  return [&place = losses[at(vn)], sum, weight] { place = {*sum, weight}; };
}

/// If they take more memory than planned, backward computes the layers again.
void keep_graphs(const OpCall& call, const RangeRunner& runner,
                 const RangeRunner::EdgeMemory& inputs, const RangeRunner::EdgeMemory& outputs) {
  const ActivationMeter& meter = call.device->activations();
  const Bytes before = meter.in_use();
  auto graphs = std::make_shared<RangeRunner::Graphs>(runner.forward_with_graphs(inputs, outputs));
  if (meter.in_use() > before + call.graph_bytes()) return;
  call.graphs->keep(call.graph(), call.graph_bytes(), std::move(graphs));
}

/// Advice for a loss or a gradient that is not finite after `updates` updates.
std::string not_finite_remedy(const ModelSpec& spec, std::int64_t num_updates) {
  constexpr double kLarge = 2;  // above the defaults of all families
  double largest = 0;
  for (const ParamSpec& param : spec.params) largest = std::max(largest, param.init.stddev);
  std::string remedy = "try a smaller train.learning_rate or train.max_grad_norm";
  if (num_updates == 0) {
    remedy = "no update came before, so check the data and the initial weights";
  }
  if (largest <= kLarge) return remedy;
  return fmt::format(
      "{}. The initial weights have a standard deviation of up to {:g}: try a smaller "
      "model.initializer_range",
      remedy, largest);
}

}  // namespace

TrainingJob::TrainingJob(std::shared_ptr<const Model> model, TrialConfig config,
                         std::shared_ptr<const JobPlan> plan)
    : model_(std::move(model)),
      config_(std::move(config)),
      plan_(std::move(plan)),
      places_(model_->spec, config_.train, plan_->layout),
      gate_(model_->spec.params.size(), plan_->first_step),
      updated_(model_->spec.params.size()),
      vn_size_(config_.train.batch_size / config_.train.virtual_nodes),
      losses_(at(plan_->layout.virtual_nodes)),
      eval_losses_(at(plan_->layout.eval_virtual_nodes)),
      metric_sums_(at(model_->spec.num_metric_sums()), std::vector<double>(eval_losses_.size())),
      squared_norms_(model_->spec.params.size()),
      predictions_(eval_losses_.size()),
      changes_(config_.train.changes),
      next_commit_(plan_->first_step) {}

std::optional<TrainChange> TrainingJob::set(const TrainValues& values) {
  const MutexLock lock(mutex_);
  if (next_commit_ >= config_.train.max_steps) return std::nullopt;
  return changes_.emplace_back(TrainChange{.step = next_commit_, .values = values});
}

double TrainingJob::learning_rate(std::int64_t step) {
  const MutexLock lock(mutex_);
  TrainConfig train = config_.train;
  train.changes = changes_;
  return learning_rate_at(train, step);
}

TrainingJob::Progress TrainingJob::take_progress() {
  const MutexLock lock(mutex_);
  Progress news = progress_;
  progress_.losses.clear();
  progress_.gradient_norms.clear();
  progress_.evaluations.clear();
  return news;
}

void TrainingJob::admit(const Home& home) {
  const OneTorchThread one_thread;  // for the user's initial weights
  home_ = &home;
  const std::vector<ParamSpec>& params = model_->spec.params;
  const auto is_written = [&](int p) { return home.is_written(plan_->layout.params[at(p)].home); };
  initialize_weights(home);
  if (start_) {
    places_.restore(*start_, home, [&](int p, ElementRange elements, const std::byte* values) {
      write_weights(home, p, elements, values);
    });
  }
  tbb::parallel_for(0, static_cast<int>(params.size()), [&](int p) {
    if (!is_written(p) && !lacks_elements(p)) write_copy(home, p, all_elements(params[at(p)]));
  });
}

/// Parameters that this host does not hold whole are first written in memory of their own; few at a
/// time if the model can, because other hosts hold most of them.
void TrainingJob::initialize_weights(const Home& home) const {
  constexpr Bytes kRounds = 8;
  const std::vector<ParamSpec>& params = model_->spec.params;
  std::vector<std::byte*> places(params.size());
  std::vector<int> apart;
  Bytes bytes_apart = 0;
  for (int p = 0; p < static_cast<int>(params.size()); ++p) {
    if (home.is_written(plan_->layout.params[at(p)].home)) continue;
    if (start_ && !is_constant(params[at(p)])) continue;
    if (!lacks_elements(p)) {
      places[at(p)] = master(home, p, 0);
    } else {
      apart.push_back(p);
      bytes_apart += params[at(p)].master().bytes();
    }
  }
  const bool needs_all = model_->initialize && !model_->map;
  const Bytes most = needs_all ? bytes_apart : bytes_apart / kRounds;
  std::size_t end = 0;
  do {
    const std::size_t begin = end;
    std::vector<std::vector<std::byte>> values;
    for (Bytes bytes = 0; end < apart.size() && bytes <= most; ++end) {
      values.emplace_back(params[at(apart[end])].master().bytes());
      places[at(apart[end])] = values.back().data();
      bytes += values.back().size();
    }
    initialize(*model_, config_.train.seed, places);
    tbb::parallel_for(begin, end, [&](std::size_t i) {
      write_weights(home, apart[i], all_elements(params[at(apart[i])]), values[i - begin].data());
    });
    std::ranges::fill(places, nullptr);
  } while (end < apart.size());
}

OpRunner::Keep TrainingJob::run_op(const OpCall& call) {
  const OpSpec& op = call.op_spec();
  const UnitSpec& unit = call.unit_spec();
  const Layout& layout = call.plan->layout;
  const auto parameters = [&](int layer) {
    const Layout::LayerPlace& place = layout.layers[at(layer)];
    std::vector<std::byte*> pointers;
    for (std::size_t p = 0; p < place.weights_buffers.size(); ++p) {
      pointers.push_back(call.memory(place.weights_buffers[p]) + place.weight_offsets[p]);
    }
    return pointers;
  };
  RangeRunner::EdgeMemory inputs, gradients, outputs;
  for (int b : op.inputs) {
    const BufferSpec& buffer = layout.buffers[at(b)];
    (buffer.kind == BufferKind::gradient ? gradients : inputs)[buffer.part] = call.memory(b);
  }
  for (int b : op.outputs) outputs[layout.buffers[at(b)].part] = call.memory(b);
  const LayerContext context{.training = op.kind != OpKind::evaluate,
                             .random = {config_.train.seed, static_cast<std::uint32_t>(call.step),
                                        static_cast<std::uint32_t>(op.vn), 0},
                             .stream = stream_of(call),
                             .gpu = call.device->gpu()};
  RangeRunner runner(*model_, op.layers, context, parameters);
  if (call.has_graph && op.kind == OpKind::forward) {
    keep_graphs(call, runner, inputs, outputs);
    return {};
  }
  const bool has_loss = op.layers.end == static_cast<int>(model_->layers.size());
  double* const loss = has_loss ? call.numbers.front() : nullptr;
  const auto numbers = std::span(call.numbers).subspan(has_loss ? 1 : 0);
  if (op.kind != OpKind::backward) {
    auto prediction = std::make_shared<Prediction>();
    if (keeps_predictions_) {
      runner.take_prediction = [&](const at::Tensor& t) { take_prediction(call, t, *prediction); };
    }
    const double weight = runner.forward(inputs, outputs, loss, numbers);
    return keep_evaluation(call, keep_loss(eval_losses_, op.vn, loss, weight),
                           std::move(prediction));
  }
  const auto take = [&](int layer, int param, const std::byte* term) {
    fold_term(call, layer, param, term);
  };
  const auto kept = call.has_graph ? call.graphs->take(call.graph()) : nullptr;
  RangeRunner::Graphs graphs = kept ? std::move(*static_cast<RangeRunner::Graphs*>(kept.get()))
                                    : runner.forward_with_graphs(inputs, {});
  const double weight = runner.backward(std::move(graphs), gradients, outputs, take, loss);
  merge_sums(call);
  const bool is_last = call.op == unit.first_op + unit.num_ops - 1;
  if (is_last && !unit.drains.empty()) finish_sums(call, numbers);
  if (numbers.empty()) return keep_loss(losses_, op.vn, loss, weight);
  return [this, call, keep = keep_loss(losses_, op.vn, loss, weight)] {
    if (keep) keep();
    keep_norms(call);
  };
}

/// A layer's sums in one slot of the cell's stack.
static std::byte* sums_in(const OpCall& call, int slot, int layer) {
  const auto& slots = call.plan->layout.sum_buffers[at(call.unit_spec().cell)];
  return call.memory(slots[at(slot)][at(layer)]);
}

void TrainingJob::fold_term(const OpCall& call, int layer, int param, const std::byte* term) const {
  const FoldStep& fold = call.op_spec().fold;
  const Layout::LayerPlace& place = call.plan->layout.layers[at(layer)];
  std::byte* sum = sums_in(call, fold.slot, layer) + place.sum.offsets[at(param)];
  add_term(stream_of(call), floats(sum), term, param_of(layer, at(param)).tensor, fold.fresh);
}

const ParamSpec& TrainingJob::param_of(int layer, std::size_t i) const {
  return model_->spec.params[at(model_->spec.layers[at(layer)].params[i])];
}

/// Calls `what(i, param)` for each parameter i of a layer that has a sum.
template <typename What>
void TrainingJob::for_each_sum(int layer, const What& what) const {
  for (std::size_t i = 0; i < model_->spec.layers[at(layer)].params.size(); ++i) {
    if (param_of(layer, i).has_sum()) what(i, param_of(layer, i));
  }
}

void TrainingJob::merge_sums(const OpCall& call) const {
  const LayerRange layers = call.unit_spec().layers;
  for (const FoldStep::Merge& merge : call.op_spec().fold.merges) {
    for (int l = layers.begin; l < layers.end; ++l) {
      const SumPlaces& places = call.plan->layout.layers[at(l)].sum;
      if (places.bytes == 0) continue;
      std::byte* into = sums_in(call, merge.into, l);
      const std::byte* from = sums_in(call, merge.from, l);
      for_each_sum(l, [&](std::size_t i, const ParamSpec& param) {
        merge_sum(stream_of(call), floats(into + places.offsets[i]),
                  floats(from + places.offsets[i]), param);
      });
    }
  }
}

/// Packs the sums of a unit that go home after its last virtual node, and computes the squared
/// norms of its untied parameters if requested.
void TrainingJob::finish_sums(const OpCall& call, std::span<double* const> norms) const {
  const UnitSpec& unit = call.unit_spec();
  const Layout& layout = call.plan->layout;
  auto norm = norms.begin();
  for (const std::vector<int>& by_layer : layout.sum_buffers[at(unit.cell)]) {
    for (int l = unit.layers.begin; l < unit.layers.end; ++l) {
      const int buffer = by_layer[at(l)];
      if (buffer < 0 || layout.buffers[at(buffer)].home == kNoHome) continue;
      const SumPlaces& places = layout.layers[at(l)].sum;
      std::byte* slot = call.memory(buffer);
      for_each_sum(l, [&](std::size_t i, const ParamSpec& param) {
        std::byte* sum = slot + places.packed_offsets[i];
        pack_sum(stream_of(call), sum, slot + places.offsets[i], param);
      });
      for (std::size_t i : layout.layers[at(l)].device_norms) {
        take_norm(*call.device, *norm++, slot + places.packed_offsets[i],
                  param_of(l, i).finished_sum());
      }
    }
  }
}

void TrainingJob::keep_norms(const OpCall& call) {
  const UnitSpec& unit = call.unit_spec();
  const bool has_loss = unit.layers.end == static_cast<int>(model_->layers.size());
  std::size_t next = has_loss ? 1 : 0;
  for (int l = unit.layers.begin; l < unit.layers.end; ++l) {
    for (std::size_t i : call.plan->layout.layers[at(l)].device_norms) {
      squared_norms_[at(model_->spec.layers[at(l)].params[i])] = *call.numbers[next++];
    }
  }
}

void TrainingJob::run_host_op(const HostCall& call) {
  const HostOpSpec& op = call.program->host_ops[at(call.op)];
  switch (op.kind) {
    case HostOpKind::load:
      return load(call, op.index == 1);
    case HostOpKind::reduce:
      return reduce(call, op.index);
    case HostOpKind::commit:
      return commit(call);
    case HostOpKind::update:
      return update(call, op.index);
    case HostOpKind::finish_evaluation:
      return finish_evaluation(call);
    case HostOpKind::finish:
      return finish();
    case HostOpKind::add:
      return add_partials(call, op.index, op.merges, op.parts);
    case HostOpKind::update_part:
      return update_part(call, op.index);
    case HostOpKind::take_weights:
      return take_weights(call, op.index);
    case HostOpKind::exchange:
      return;  // see OpRunner::exchange()
  }
}

void TrainingJob::load(const HostCall& call, bool evaluation) const {
  const OneTorchThread one_thread;  // for the user's source
  const DataSource& source = evaluation ? *config_.data->eval : *config_.data->train;
  const auto row_bytes =
      static_cast<std::size_t>(source.sample_elements()) * size_of(source.dtype());
  const Layout& layout = call.plan->layout;
  const auto& buffers = evaluation ? layout.eval_batch : layout.batch;
  int vn = evaluation ? layout.first_eval_vn : layout.first_vn;
  auto position = static_cast<std::uint64_t>(
      (evaluation ? 0 : call.step * config_.train.batch_size) + vn * vn_size_);
  for (int buffer : buffers) {
    std::byte* row = call.home->at(layout.buffers[at(buffer)].home);
    for (std::int64_t i = 0; i < vn_size_; ++i, ++position, row += row_bytes) {
      const std::uint64_t sample =
          evaluation ? position : sample_at(position, source.num_samples(), config_.train.seed);
      const std::span values(row, row_bytes);
      source.read(sample, values);
      if (!evaluation && config_.data->augment) {
        config_.data->augment(values, augment_words(config_.train.seed, call.step, vn, i));
      }
      check_sample(model_->spec, source.dtype(), values, {evaluation, sample});
    }
    ++vn;
  }
}

/// These parts of the packed sums of a layer.
void TrainingJob::add_partials(const HostCall& call, int layer,
                               std::span<const FoldStep::Merge> merges,
                               std::span<const HomeRange> parts) const {
  const Layout& layout = call.plan->layout;
  for (const FoldStep::Merge& merge : merges) {
    const Bytes into = layout.partial(layer, at(merge.into));
    const Bytes from = layout.partial(layer, at(merge.from));
    for_each_sum(layer, [&](std::size_t i, const ParamSpec& param) {
      const Bytes offset = layout.layers[at(layer)].sum.packed_offsets[i];
      for (const HomeRange& part : parts) {
        const Bytes first = std::max(offset, part.home);
        const Bytes last = std::min(offset + param.finished_sum().bytes(), part.home + part.bytes);
        if (first >= last) continue;
        add_packed(call.home->at(into + first), call.home->at(from + first),
                   param.finished_sum().dtype, last - first);
      }
    });
  }
}

std::byte* TrainingJob::master(const Home& home, int param, std::int64_t element) const {
  const Layout::ParamPlace& place = plan_->layout.params[at(param)];
  const Bytes size = size_of(model_->spec.params[at(param)].master().dtype);
  return home.at(place.home) + static_cast<Bytes>(element - place.held.begin) * size;
}

bool TrainingJob::lacks_elements(int param) const {
  return plan_->layout.params[at(param)].held != all_elements(model_->spec.params[at(param)]);
}

std::byte* TrainingJob::sum_at(const HostCall& call, int param, std::int64_t element) const {
  const Bytes size = size_of(model_->spec.params[at(param)].finished_sum().dtype);
  return call.home->at(call.plan->layout.params[at(param)].sum +
                       static_cast<Bytes>(element) * size);
}

void TrainingJob::reduce(const HostCall& call, int layer) {
  const Layout& layout = call.plan->layout;
  const Layout::LayerPlace& place = layout.layers[at(layer)];
  const HomeRange all{0, place.sum.packed_bytes};
  add_partials(call, layer, place.merges, std::span(&all, 1));
  const std::vector<int>& params = model_->spec.layers[at(layer)].params;
  for_each_sum(layer, [&](std::size_t i, const ParamSpec& param) {
    if (!param.trainable) return;
    const DType dtype = param.finished_sum().dtype;
    const ElementRange kept = layout.params[at(params[i])].kept;
    const Bytes use = layout.sum_of_use(layer, i) + static_cast<Bytes>(kept.begin) * size_of(dtype);
    std::byte* total = sum_at(call, params[i], kept.begin);
    // A tied parameter is summed from its last use to its first.
    if (call.home->at(use) != total) {
      const Bytes bytes = static_cast<Bytes>(kept.size()) * size_of(dtype);
      add_packed(total, call.home->at(use), dtype, bytes);
    }
    if (layout.is_sharded()) return write_norms(call, params[i]);
    if (std::ranges::count(layout.layers[at(layer)].device_norms, i) > 0) return;
    squared_norms_[at(params[i])] = squared_norm_of(total, param.finished_sum());
  });
}

void TrainingJob::commit(const HostCall& call) {
  if (call.plan->layout.has_peers()) take_numbers(call);
  if (call.plan->layout.is_shadowed()) keep_numbers(call);
  const auto loss = fold(std::span<const WeightedSum>(losses_), config_.train.reduction_groups);
  double squared = 0;
  for (double norm : squared_norms_) squared += norm;
  const double norm = std::sqrt(squared) / loss.weight;
  failed_to_commit_ = !std::isfinite(loss.mean()) || !std::isfinite(norm);
  if (failed_to_commit_) {
    throw Error(fmt::format("step {}: loss {:f}, gradient norm {:f} are not finite; {}",
                            call.step + 1, loss.mean(), norm,
                            not_finite_remedy(model_->spec, call.step)));
  }
  require_rate(config_.train, call.step);
  const MutexLock lock(mutex_);
  config_.train.changes = changes_;
  next_commit_ = std::max(next_commit_, call.step + 1);
  const double max_norm = values_at(config_.train, call.step).max_grad_norm;
  gradient_scale_ = clip_coefficient(norm, max_norm) / loss.weight;
  if (call.step >= steps_noted_) {  // else the step is repeated
    progress_.losses.push_back(loss.mean());
    progress_.gradient_norms.push_back(norm);
    steps_noted_ = call.step + 1;
  }
  progress_.weight_per_step = loss.weight;
}

}  // namespace spillway
