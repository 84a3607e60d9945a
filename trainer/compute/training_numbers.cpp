#include <cstring>
#include <span>

#include "core/device/kernels.h"
#include "spillway/ids.h"
#include "trainer/compute/sum_term.h"
#include "trainer/compute/training_job.h"

/// What the hosts of a trial tell each other beside sums: losses, their weights, sums of metrics.
namespace spillway {
namespace {

double* numbers_at(const HostCall& call, Bytes home) {
  return reinterpret_cast<double*>(call.home->at(home));
}

}  // namespace

void TrainingJob::write_numbers(const HostCall& call, int word) {
  const Layout& layout = call.plan->layout;
  const int index = call.program->host_ops[at(call.op)].index;
  double* number = nullptr;
  const auto write = [&](const WeightedSum& loss) {
    *number++ = loss.sum;
    *number++ = loss.weight;
  };
  if (index == kStepNumbers) {
    told_ = call;
    number = numbers_at(call, layout.numbers(layout.first_vn));
    const auto own = std::span(losses_).subspan(at(layout.first_vn), layout.batch.size());
    for (const WeightedSum& loss : own) write(loss);
    if (layout.is_sharded()) *numbers_at(call, layout.norms[at(layout.host)].home) = word;
  }
  if (index != kEvalNumbers) return;
  number = numbers_at(call, layout.numbers_of_eval(layout.first_eval_vn));
  for (std::size_t i = 0; i < layout.eval_batch.size(); ++i) {
    const std::size_t vn = at(layout.first_eval_vn) + i;
    write(eval_losses_[vn]);
    for (const std::vector<double>& by_vn : metric_sums_) *number++ = by_vn[vn];
  }
}

void TrainingJob::take_numbers(const HostCall& call) {
  const double* number = numbers_at(call, call.plan->layout.numbers(0));
  for (WeightedSum& loss : losses_) {
    loss = {number[0], number[1]};
    number += 2;
  }
  if (call.plan->layout.is_sharded()) take_norms(call);
}

namespace {

/// Calls `what(range)` for each range of a home that hosts exchange after a step.
template <typename What>
void for_each_number_range(const Layout& layout, const What& what) {
  what(HomeRange{layout.numbers(0), layout.numbers(layout.virtual_nodes) - layout.numbers(0)});
  for (const HomeRange& norms : layout.norms) what(norms);
}

}  // namespace

/// Before a commit. The next step may write others in their place.
void TrainingJob::keep_numbers(const HostCall& call) {
  last_numbers_.clear();
  for_each_number_range(call.plan->layout, [&](const HomeRange& range) {
    const std::byte* const first = call.home->at(range.home);
    last_numbers_.insert(last_numbers_.end(), first, first + range.bytes);
  });
}

Bytes TrainingJob::num_bytes_told() const {
  Bytes bytes = 0;
  for_each_number_range(told_.plan->layout, [&](const HomeRange& range) { bytes += range.bytes; });
  return bytes;
}

void TrainingJob::commit_with(std::span<const std::byte> numbers) {
  for_each_number_range(told_.plan->layout, [&](const HomeRange& range) {
    std::memcpy(told_.home->at(range.home), numbers.data(), range.bytes);
    numbers = numbers.subspan(range.bytes);
  });
  commit(told_);
}

/// Those of the chunks of this host's part of a parameter.
void TrainingJob::write_norms(const HostCall& call, int param) const {
  const Layout::ParamPlace& place = call.plan->layout.params[at(param)];
  const HostPart* own = place.own_part();
  if (!own) return;
  const DType dtype = model_->spec.params[at(param)].finished_sum().dtype;
  norms_of_chunks(numbers_at(call, own->norms), sum_at(call, param, place.own.begin), dtype,
                  static_cast<std::size_t>(place.own.size()));
}

/// In the order in which squared_norm_of() adds them.
void TrainingJob::take_norms(const HostCall& call) {
  const Layout& layout = call.plan->layout;
  for (std::size_t p = 0; p < squared_norms_.size(); ++p) {
    squared_norms_[p] = 0;
    if (!model_->spec.params[p].trainable) continue;
    for (const HostPart& part : layout.params[p].parts) {
      const auto n = static_cast<std::size_t>(part.elements.size());
      const std::span norms(numbers_at(call, part.norms), kernels::num_norm_chunks(n));
      for (double norm : norms) squared_norms_[p] += norm;
    }
  }
  words_.clear();
  for (const HomeRange& host : layout.norms) {
    words_.push_back(static_cast<int>(*numbers_at(call, host.home)));
  }
}

void TrainingJob::take_eval_numbers(const HostCall& call) {
  const double* number = numbers_at(call, call.plan->layout.numbers_of_eval(0));
  for (std::size_t vn = 0; vn < eval_losses_.size(); ++vn) {
    eval_losses_[vn] = {number[0], number[1]};
    number += 2;
    for (std::vector<double>& by_vn : metric_sums_) by_vn[vn] = *number++;
  }
}

}  // namespace spillway
