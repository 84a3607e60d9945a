#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "core/base/grouped.h"
#include "scheduler/plan/cut.h"
#include "scheduler/plan/lower.h"

namespace spillway {

/// The work of one unit: virtual nodes [vn_begin, vn_end) of a cell through its stage.
struct Task {
  OpKind kind = OpKind::forward;
  int stage = 0, cell = 0, track = 0;
  int vn_begin = 0, vn_end = 0;
  double cost_s = 0;
};

/// The tasks of a program, by direction and stage. Those of a cell are in order.
struct TaskGraph {
  std::vector<Task> tasks;
  Grouped after;  ///< by task: those that make what it reads, or add to its sums before it
};

/// The cost of an op of a stage.
using OpCost = std::function<double(OpKind kind, int stage)>;
/// As long as there is room for graphs: a backward that uses one computes no forward.
double expected_cost(OpKind kind, double forward_s, double backward_s, bool has_graph);
/// By stage: the bytes of a graph that its forward keeps; 0: none. `graphs`: of a forward that may.
/// The last stage has none: its forward and backward are one op.
std::vector<Bytes> kept_graphs(const Strategy& strategy, const MemorySplit& split,
                               std::vector<Bytes> graphs);
/// By stage: whether it has a backward.
using HasBackward = std::vector<bool>;

/// The tasks of a training step: forward from the first stage on, then backward from the last.
TaskGraph training_tasks(const ModelSpec& model, const JobShape& shape, const Strategy& strategy,
                         const Cut& cut, const HasBackward& has_backward, const OpCost& cost);
/// The tasks of an evaluation. Its virtual nodes are divided like the groups.
TaskGraph evaluation_tasks(const JobShape& shape, const Strategy& strategy, const Cut& cut,
                           const OpCost& cost);

/// An order of the tasks in which each comes after what it waits for, and in which those of one
/// track are in the order that the track keeps. Found by list scheduling: a track that is free
/// begins the best of the tasks that could start, as if copies took no time. Of equally good tasks
/// it begins the first in the list. Source: Graham, "Bounds on multiprocessing timing anomalies",
/// 1969.
std::vector<int> planned_order(const TaskGraph& graph, const Strategy& strategy);

/// What a unit of a track keeps on its device.
struct UnitWeights {
  const std::vector<int>* weights = nullptr;  ///< buffers, ascending
  int set = 0;                                ///< Stage::set
};
/// By unit: the weights that leave the device with it. They stay while the track's next unit uses
/// them, or belongs to the same set and a later one uses them. `track`: its units, in order.
Grouped leaving_weights(const std::vector<UnitWeights>& track);

/// A cell's stack of gradient sums: which slot every virtual node's gradient goes to, and which
/// slots hold finished subtrees at the end. The stack is at most log2(groups) + 2 deep for a cell
/// that starts at a subtree's edge; finished subtrees keep their slot until the last unit ends.
struct FoldPlan {
  int num_slots = 0;
  std::vector<FoldStep> steps;             ///< by virtual node of the cell
  std::vector<std::pair<int, int>> roots;  ///< (first group, slot), ascending
};
FoldPlan plan_fold(GroupRange cell, int groups, int vns_per_group);

}  // namespace spillway
