#pragma once

#include <span>
#include <vector>

#include "scheduler/plan/stage_ops.h"
#include "scheduler/plan/tasks.h"
#include "scheduler/search/stage_facts.h"

namespace spillway {

/// A training step of a strategy without ops and homes: its units in the order of the program, and
/// what the ops of each stage exchange.
struct StepOutline {
  /// `table` and `strategy` outlive it.
  StepOutline(StageTable& table, const Strategy& strategy, int slots);

  const StageFacts& facts(const Task& task) const { return *stages[at(task.stage)]; }
  /// What an op reads, and what it makes: boundaries, gradients and the batch, each one of a
  /// virtual node.
  std::span<const int> inputs(const Task& task) const { return inputs_[op(task.kind, task.stage)]; }
  std::span<const int> outputs(const Task& task) const {
    return outputs_[op(task.kind, task.stage)];
  }
  Bytes workspace(const Task& task) const {
    const bool is_backward = task.kind == OpKind::backward;
    return is_backward ? facts(task).backward_workspace : facts(task).forward_workspace;
  }
  const std::vector<Cell>& cells(int stage) const { return strategy.stages[at(stage)].cells; }
  GroupRange groups(const Task& task) const { return cells(task.stage)[at(task.cell)].groups; }
  /// The number of the task's cell, among those of all stages.
  std::size_t cell(const Task& task) const { return at(first_cells[at(task.stage)] + task.cell); }

  const Strategy& strategy;
  std::vector<const StageFacts*> stages;
  std::vector<Bytes> graphs;           ///< by stage; 0: none is kept
  std::vector<int> first_cells;        ///< by stage
  std::vector<const FoldPlan*> folds;  ///< by cell
  TaskGraph graph;
  std::vector<int> order;    ///< of the tasks
  Grouped leaves;            ///< by task: see leaving_weights()
  std::vector<Bytes> bytes;  ///< by what is exchanged

 private:
  /// All ops of a stage in one direction exchange the same.
  static int op(OpKind kind, int stage) { return 2 * stage + (kind == OpKind::backward ? 1 : 0); }
  OpCost op_cost() const;
  void exchange(StageTable& table, const Cut& cut);
  void choose_leaving();

  Grouped inputs_, outputs_;  // by op()
};

}  // namespace spillway
