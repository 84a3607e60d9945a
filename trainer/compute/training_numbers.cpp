#include <span>

#include "spillway/ids.h"
#include "trainer/compute/training_job.h"

/// What the hosts of a trial tell each other beside sums: losses, their weights, sums of metrics.
namespace spillway {
namespace {

double* numbers_at(const HostCall& call, Bytes home) {
  return reinterpret_cast<double*>(call.home->at(home));
}

}  // namespace

void TrainingJob::write_numbers(const HostCall& call) const {
  const Layout& layout = call.plan->layout;
  const int index = call.program->host_ops[at(call.op)].index;
  double* number = nullptr;
  const auto write = [&](const WeightedSum& loss) {
    *number++ = loss.sum;
    *number++ = loss.weight;
  };
  if (index == kStepNumbers) {
    number = numbers_at(call, layout.numbers(layout.first_vn));
    const auto own = std::span(losses_).subspan(at(layout.first_vn), layout.batch.size());
    for (const WeightedSum& loss : own) write(loss);
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
