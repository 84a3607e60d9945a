#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>

namespace spillway {

/// Values of metrics by name: {"accuracy", 0.93}.
using Metrics = std::map<std::string, double>;

/// A number that evaluations give beside the loss. The loss layer gives sums over the examples of a
/// virtual node; like losses, they are folded in the order of virtual nodes, in double precision.
/// So no bit of a metric depends on devices, budgets or lanes.
struct MetricSpec {
  std::string name;  ///< "accuracy": a column of metrics.csv, and what sweep.metric.name may be
  int num_sums = 0;  ///< of the loss layer; 0: it follows from the loss
  /// The metric, of the mean loss and the `num_sums` total sums. A function of these alone; any
  /// thread may call it.
  std::function<double(double loss, std::span<const double> sums)> value;
};

}  // namespace spillway
