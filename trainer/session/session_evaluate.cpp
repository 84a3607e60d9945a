#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/spec/stored_tensor.h"
#include "spillway/error.h"
#include "trainer/config/batch_split.h"
#include "trainer/session/session_impl.h"

/// A trial on other data: a job of its own, which begins where training ends. So it only evaluates
/// once, by the units of evaluations.
namespace spillway {

/// What such a job leaves.
struct Session::Impl::Evaluated {
  std::shared_ptr<const Model> model;
  std::vector<EvaluationSums> nodes;
  std::vector<TrainingJob::Prediction> predictions;
};

namespace {

using Source = std::shared_ptr<const DataSource>;

/// `count` samples: those of a source, then copies of its last one.
class Filled final : public DataSource {
 public:
  Filled(Source whole, std::uint64_t count) : whole_(std::move(whole)), count_(count) {}
  std::uint64_t num_samples() const override { return count_; }
  std::int64_t sample_elements() const override { return whole_->sample_elements(); }
  DType dtype() const override { return whole_->dtype(); }
  void read(std::uint64_t index, std::span<std::byte> row) const override {
    whole_->read(std::min(index, whole_->num_samples() - 1), row);
  }

 private:
  Source whole_;
  std::uint64_t count_;
};

void copy_to(std::span<std::byte* const> places, const std::vector<ParamSpec>& params,
             const std::vector<NamedTensor>& weights) {
  for (std::size_t p = 0; p < params.size(); ++p) {
    const std::string& name = params[p].tensor_name();
    const auto found = std::ranges::find(weights, name, &NamedTensor::name);
    if (found == weights.end()) throw Error("the weights lack parameter " + name);
    const auto size = static_cast<Bytes>(found->value.element_size());
    const auto* const values = static_cast<const std::byte*>(found->value.const_data_ptr());
    for_each_run(params[p], [&](const StoredRun& run) {
      std::memcpy(places[p] + static_cast<Bytes>(run.in_param) * size,
                  values + static_cast<Bytes>(run.in_tensor) * size,
                  static_cast<Bytes>(run.length) * size);
    });
  }
}

/// `model` with these weights, which have the names of its parameters; they must outlive the run.
ModelFactory with_weights(const ModelFactory& model,
                          const std::weak_ptr<const std::vector<NamedTensor>>& weights) {
  if (!model) return nullptr;
  return [=](std::int64_t vn_size) {
    auto made = model(vn_size);
    made->initialize = [weights, params = made->spec.params](std::uint64_t,
                                                             std::span<std::byte* const> places) {
      copy_to(places, params, *weights.lock());
    };
    return made;
  };
}

/// `trial` as one that evaluates `count` samples, which are whole virtual nodes, and ends.
TrialConfig evaluation_on(TrialConfig trial, const Source& data, std::uint64_t count) {
  const auto filled = std::make_shared<Filled>(data, count);
  trial.data =
      std::make_shared<DataSplit>(DataSplit{.train = filled, .eval = filled, .augment = {}});
  trial.train.eval_batches = static_cast<std::int64_t>(count) / trial.train.batch_size + 1;
  return trial;
}

/// An evaluation of a trial with these weights. It has no need for much optimizer state.
TrialConfig without_training(TrialConfig trial,
                             const std::weak_ptr<const std::vector<NamedTensor>>& weights) {
  trial.model = with_weights(trial.model, weights);
  trial.name += "/evaluation";
  trial.client_id.clear();
  trial.until = 0;
  trial.checkpoint = {};
  trial.weights_file.clear();
  trial.keep_weights = false;
  trial.train.optimizer = OptimizerKind::sgd;
  trial.train.max_steps = 1;
  trial.train.eval_steps = 0;
  trial.train.autoscale.clear();
  return trial;
}

std::uint64_t num_samples_of(const Source& data) {
  if (!data || data->num_samples() == 0) throw ConfigError("data", 0, "has no samples; give some");
  return data->num_samples();
}

std::uint64_t vn_size_of(const TrainConfig& train) {
  return static_cast<std::uint64_t>(train.batch_size / virtual_nodes_of(train));
}

void add(EvaluationSums& total, const EvaluationSums& node, double factor = 1) {
  total.loss = total.loss + WeightedSum{factor * node.loss.sum, factor * node.loss.weight};
  total.metrics.resize(node.metrics.size());
  for (std::size_t i = 0; i < node.metrics.size(); ++i) {
    total.metrics[i] += factor * node.metrics[i];
  }
}

/// Of the first nodes, without the copies in the last one: a part `copied` of what nodes.back()
/// has.
EvaluationSums sum_of(const std::vector<EvaluationSums>& nodes, std::size_t num_nodes,
                      double copied) {
  EvaluationSums sums;
  for (std::size_t n = 0; n < num_nodes; ++n) add(sums, nodes[n]);
  if (copied > 0) add(sums, nodes.back(), -copied);
  return sums;
}

/// The first `num_samples` of all, [N, ...] f32.
at::Tensor joined(const std::vector<TrainingJob::Prediction>& parts, std::int64_t num_samples) {
  std::vector<std::int64_t> shape = parts.front().shape;
  shape[0] = num_samples;
  at::Tensor all = at::empty(shape, at::kFloat);
  std::int64_t begin = 0;
  for (const TrainingJob::Prediction& part : parts) {
    const std::int64_t count = std::min(part.shape[0], num_samples - begin);
    const at::Tensor values =
        at::from_blob(const_cast<std::byte*>(part.values.data()), part.shape, part.dtype);
    all.narrow(0, begin, count).copy_(values.narrow(0, 0, count));
    begin += count;
  }
  return all;
}

}  // namespace

Session::Impl::Evaluated Session::Impl::run_evaluation(TrialConfig evaluation, bool predicts) {
  const JobId id = submit_evaluation(std::move(evaluation), predicts);
  run_until_ended(id);
  const MutexLock lock(mutex);
  SessionTrial& ended = trial(id);
  if (!ended.ended()) {
    ended.request = TrialRequest::stop;
    shell->stop(id);
    throw Error(fmt::format("{} waits for host memory or devices that other trials keep; stop one",
                            ended.config.name));
  }
  if (ended.result.state != TrialState::done) {
    throw Error(fmt::format("{} was not completed: {}", ended.config.name, ended.result.reason));
  }
  Evaluated evaluated{ended.model, ended.job->evaluation_by_node(), ended.job->take_predictions()};
  ended.config.data = nullptr;  // nobody asks for them again
  ended.config.model = nullptr;
  return evaluated;
}

/// The last virtual node is filled with copies of the last sample. A further one that has only
/// copies tells what to take off again.
Evaluation Session::Impl::evaluate(const TrialConfig& trial, std::vector<NamedTensor> weights,
                                   const std::shared_ptr<const DataSource>& data) {
  const std::uint64_t num_samples = num_samples_of(data);
  const auto values = std::make_shared<const std::vector<NamedTensor>>(std::move(weights));
  const std::uint64_t vn_size = vn_size_of(trial.train);
  const std::uint64_t num_nodes = (num_samples + vn_size - 1) / vn_size;
  const std::uint64_t copies = num_nodes * vn_size - num_samples;
  const std::uint64_t all = (num_nodes + (copies > 0 ? 1 : 0)) * vn_size;
  const Evaluated evaluated =
      run_evaluation(evaluation_on(without_training(trial, values), data, all), false);
  const double copied = static_cast<double>(copies) / static_cast<double>(vn_size);
  return evaluation_of(evaluated.model->spec, sum_of(evaluated.nodes, num_nodes, copied));
}

/// As submit() has completed it.
TrialConfig Session::Impl::config_of(JobId id) const {
  const MutexLock lock(mutex);
  return known_trial(id).config;
}

Evaluation Session::evaluate(JobId id, std::shared_ptr<const DataSource> data) {
  return impl_->evaluate(impl_->config_of(id), weights(id), data);
}

Evaluation Session::evaluate(const TrialConfig& trial, std::vector<NamedTensor> weights,
                             std::shared_ptr<const DataSource> data) {
  trial.validate();
  return impl_->evaluate(trial, std::move(weights), data);
}

at::Tensor Session::predict(JobId id, std::shared_ptr<const DataSource> data) {
  const std::uint64_t num_samples = num_samples_of(data);
  const auto values = std::make_shared<const std::vector<NamedTensor>>(weights(id));
  const TrialConfig trial = without_training(impl_->config_of(id), values);
  const std::uint64_t vn_size = vn_size_of(trial.train);
  const std::uint64_t padded = (num_samples + vn_size - 1) / vn_size * vn_size;
  const auto evaluated = impl_->run_evaluation(evaluation_on(trial, data, padded), true);
  return joined(evaluated.predictions, static_cast<std::int64_t>(num_samples));
}

}  // namespace spillway
