#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/device/kernels.h"
#include "core/spec/stored_tensor.h"
#include "spillway/ids.h"
#include "trainer/compute/grains.h"
#include "trainer/compute/optimizer.h"
#include "trainer/compute/running_statistic.h"
#include "trainer/compute/training_job.h"

/// Updates of weights and statistics, in the program that follows the commit of a step.
namespace spillway {
namespace {

float* as_floats(std::byte* data) { return reinterpret_cast<float*>(data); }

/// Values of a master in the type of the layer.
void convert(std::byte* to, const std::byte* from, const ParamSpec& param, std::int64_t size) {
  const auto n = static_cast<std::size_t>(size);
  if (param.tensor.dtype == DType::bf16) {
    kernels::narrow(reinterpret_cast<BFloat16*>(to), reinterpret_cast<const float*>(from), n);
  } else {
    std::memcpy(to, from, n * size_of(param.tensor.dtype));
  }
}

}  // namespace

/// Calls `what(param)` for each parameter of a weights buffer.
template <typename What>
void TrainingJob::for_each_param_in(const HostCall& call, int weights_buffer,
                                    const What& what) const {
  for (int p = 0; p < static_cast<int>(model_->spec.params.size()); ++p) {
    if (call.plan->layout.params[at(p)].weights_buffer == weights_buffer) what(p);
  }
}

void TrainingJob::update(const HostCall& call, int weights_buffer) {
  for_each_param_in(call, weights_buffer, [&](int p) {
    update_param(call, p);
    gate_.end_update(at(p));
  });
}

void TrainingJob::update_part(const HostCall& call, int weights_buffer) {
  for_each_param_in(call, weights_buffer, [&](int p) {
    update_param(call, p);
    updated_[at(p)] = call.step;
  });
}

/// The parts of other hosts are there. Repeated if the step is.
void TrainingJob::take_weights(const HostCall& call, int weights_buffer) {
  for_each_param_in(call, weights_buffer, [&](int p) {
    if (gate_.version(at(p)) < call.step) gate_.end_update(at(p));
  });
}

void TrainingJob::write_copy(const Home& home, int param, ElementRange elements) const {
  const ParamSpec& spec = model_->spec.params[at(param)];
  const Bytes size = size_of(spec.tensor.dtype);
  const std::byte* const from = master(home, param, elements.begin);
  std::byte* const copy =
      home.at(plan_->layout.in_block(param)) + static_cast<Bytes>(elements.begin) * size;
  if (copy != from) convert(copy, from, spec, elements.size());
}

void TrainingJob::write_weights(const Home& home, int param, ElementRange elements,
                                const std::byte* values) const {
  const ParamSpec& spec = model_->spec.params[at(param)];
  const Bytes size = size_of(spec.tensor.dtype), master_size = size_of(spec.master().dtype);
  const ElementRange held = overlap(elements, plan_->layout.params[at(param)].held);
  if (held.size() > 0) {
    std::memcpy(master(home, param, held.begin),
                values + static_cast<Bytes>(held.begin - elements.begin) * master_size,
                static_cast<Bytes>(held.size()) * master_size);
  }
  std::byte* const copy = home.at(plan_->layout.in_block(param));
  convert(copy + static_cast<Bytes>(elements.begin) * size, values, spec, elements.size());
}

/// What this host keeps of it.
void TrainingJob::update_param(const HostCall& call, int number) {
  const ParamSpec& param = model_->spec.params[at(number)];
  if (!is_constant(param)) gate_.begin_update(at(number));  // otherwise no checkpoint reads it
  if (param.is_statistic()) {
    const ElementRange kept = call.plan->layout.params[at(number)].kept;
    update_statistic(master(*call.home, number, kept.begin), param,
                     param.is_observed() ? as_floats(sum_at(call, number, kept.begin)) : nullptr,
                     kept.size(), config_.train.virtual_nodes, call.step);
    write_copy(*call.home, number, kept);
  } else if (param.trainable) {
    update_weights(call, number);
  }
}

void TrainingJob::complete_updates(std::int64_t step) {
  for (int p = 0; p < static_cast<int>(model_->spec.params.size()); ++p) {
    if (gate_.version(at(p)) >= step) continue;
    if (updated_[at(p)] < step) update_param({.step = step, .plan = plan_, .home = home_}, p);
    gate_.end_update(at(p));
  }
}

void TrainingJob::take_state(const TrainingJob& from) {
  assert(!plan_->layout.is_sharded());
  places_.take(from.places_, *from.home_, *home_, gate_);
  for (int p = 0; p < static_cast<int>(model_->spec.params.size()); ++p) {
    if (Home::is_shared(plan_->layout.params[at(p)].home)) continue;
    write_copy(*home_, p, all_elements(model_->spec.params[at(p)]));
  }
}

void TrainingJob::update_weights(const HostCall& call, int number) const {
  const Layout& layout = call.plan->layout;
  const ParamSpec& param = model_->spec.params[at(number)];
  const ElementRange kept = layout.params[at(number)].kept;
  if (kept.size() == 0) return;
  UpdatedParam place{.weights = as_floats(master(*call.home, number, kept.begin))};
  std::byte* gradient = sum_at(call, number, kept.begin);
  if (param.finished_sum().dtype == DType::bf16) {
    place.gradient = reinterpret_cast<const BFloat16*>(gradient);
  } else {
    place.gradient = as_floats(gradient);
  }
  for (int i = 0; i < layout.moments; ++i) {
    place.moments[at(i)] = as_floats(call.home->at(layout.moment(number, i)));
  }
  const UpdateRule rule = update_rule(config_.train, call.step - 1, param, gradient_scale_);
  in_grains(static_cast<std::size_t>(kept.size()), [&](std::size_t begin, std::size_t size) {
    apply_update(place, begin, begin + size, rule);
    const std::int64_t first = kept.begin + static_cast<std::int64_t>(begin);
    write_copy(*call.home, number, {first, first + static_cast<std::int64_t>(size)});
  });
}

}  // namespace spillway
