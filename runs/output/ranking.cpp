#include "runs/output/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace spillway {

std::vector<std::string> metric_names(const RunLog& run) {
  std::vector<std::string> names;
  for (const TrialLog& trial : run.trials) {
    for (const std::string& name : trial.metrics) {
      if (std::ranges::count(names, name) == 0) names.push_back(name);
    }
  }
  return names;
}

std::optional<double> metric_in(const Metrics& metrics, const std::string& name) {
  const auto found = metrics.find(name);
  return found == metrics.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> metric_of(const RunLog& run, std::size_t trial) {
  const TrialResult& result = run.trials[trial].result;
  auto value = metric_in(result.metrics, to_string(run.metric.name));
  if (run.metric.name == MetricKind::final_loss) value = result.final_loss;
  if (run.metric.name == MetricKind::eval_loss) value = result.eval_loss;
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::vector<std::size_t> ranked_trials(const RunLog& run) {
  std::vector<std::size_t> trials(run.trials.size());
  std::iota(trials.begin(), trials.end(), 0);
  const double sign = run.metric.goal == MetricGoal::maximize ? -1 : 1;
  std::ranges::stable_sort(trials, {}, [&](std::size_t trial) {
    const auto value = metric_of(run, trial);
    return value ? sign * *value : std::numeric_limits<double>::infinity();
  });
  return trials;
}

std::optional<std::size_t> best_trial(const RunLog& run) {
  for (const std::size_t trial : ranked_trials(run)) {
    const bool has_weights = !run.trials[trial].result.weights_xxh3.empty();
    if (has_weights && metric_of(run, trial)) return trial;
  }
  return std::nullopt;
}

}  // namespace spillway
