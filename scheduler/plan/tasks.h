#pragma once

#include <functional>
#include <vector>

#include "scheduler/plan/cut.h"
#include "scheduler/plan/lower.h"

namespace spillway {

/// The work of one unit: virtual nodes [vn_begin, vn_end) of a cell through its stage.
struct Task {
  OpKind kind = OpKind::forward;
  int stage = 0, cell = 0, track = 0;
  int vn_begin = 0, vn_end = 0;
  double cost_s = 0;
  std::vector<int> after;  ///< tasks that make what it reads, or add to its sums before it
};

/// The cost of an op of a stage.
using OpCost = std::function<double(OpKind kind, int stage)>;
/// By stage: whether it has a backward.
using HasBackward = std::vector<bool>;

/// The tasks of a training step, by stage and direction.
std::vector<Task> training_tasks(const ModelSpec& model, const JobShape& shape,
                                 const Strategy& strategy, const Cut& cut,
                                 const HasBackward& has_backward, const OpCost& cost);
/// The tasks of an evaluation. Its virtual nodes are divided like the groups.
std::vector<Task> evaluation_tasks(const JobShape& shape, const Strategy& strategy, const Cut& cut,
                                   const OpCost& cost);

/// An order of the tasks in which each comes after what it waits for, and in which those of one
/// track are in the order that the track keeps. Found by list scheduling: a track that is free
/// begins the best of the tasks that could start, as if copies took no time. Source: Graham,
/// "Bounds on multiprocessing timing anomalies", 1969.
std::vector<int> planned_order(const std::vector<Task>& tasks, const Strategy& strategy);

}  // namespace spillway
