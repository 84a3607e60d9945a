#include <utility>

#include "core/device/kernels.h"
#include "spillway/ids.h"
#include "trainer/compute/training_job.h"

/// What evaluations of a trial give.
namespace spillway {

OpRunner::Keep TrainingJob::keep_evaluation(const OpCall& call, OpRunner::Keep keep_loss,
                                            std::shared_ptr<Prediction> prediction) {
  if (!keep_loss) return keep_loss;
  return [this, vn = at(call.op_spec().vn), numbers = call.numbers, keep = std::move(keep_loss),
          prediction = std::move(prediction)] {
    keep();
    for (std::size_t i = 0; i < metric_sums_.size(); ++i) metric_sums_[i][vn] = *numbers[i + 1];
    if (keeps_predictions_) predictions_[vn] = std::move(*prediction);
  };
}

void TrainingJob::take_prediction(const OpCall& call, const at::Tensor& tensor,
                                  Prediction& prediction) const {
  const at::Tensor values = tensor.contiguous();
  prediction = {values.sizes().vec(), values.scalar_type(),
                std::vector<std::byte>(values.nbytes())};
  kernels::copy(call.device->compute().stream(), prediction.values.data(), values.const_data_ptr(),
                values.nbytes());
}

void TrainingJob::finish_evaluation(const HostCall& call) {
  if (call.plan->layout.has_peers()) take_eval_numbers(call);
  Evaluation values = evaluation_of(model_->spec, evaluation_sums());
  const MutexLock lock(mutex_);
  if (std::exchange(last_evaluated_, call.step) == call.step) return;  // the step is repeated
  progress_.evaluations.emplace_back(call.step, std::move(values));
}

EvaluationSums TrainingJob::evaluation_sums() const {
  EvaluationSums sums{.loss = fold(std::span<const WeightedSum>(eval_losses_), 1)};
  for (const auto& by_vn : metric_sums_) {
    sums.metrics.push_back(fold(std::span<const double>(by_vn), 1));
  }
  return sums;
}

std::vector<EvaluationSums> TrainingJob::evaluation_by_node() const {
  std::vector<EvaluationSums> nodes;
  for (std::size_t vn = 0; vn < eval_losses_.size(); ++vn) {
    nodes.push_back({.loss = eval_losses_[vn], .metrics = {}});
    for (const auto& by_vn : metric_sums_) nodes.back().metrics.push_back(by_vn[vn]);
  }
  return nodes;
}

Evaluation evaluation_of(const ModelSpec& model, const EvaluationSums& sums) {
  Evaluation values{.loss = sums.loss.mean()};
  auto rest = std::span<const double>(sums.metrics);
  for (const MetricSpec& metric : model.metrics) {
    const auto num_sums = at(metric.num_sums);
    values.metrics[metric.name] = metric.value(values.loss, rest.first(num_sums));
    rest = rest.subspan(num_sums);
  }
  return values;
}

}  // namespace spillway
