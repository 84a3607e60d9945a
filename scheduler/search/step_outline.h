#pragma once

#include <vector>

#include "scheduler/plan/stage_ops.h"
#include "scheduler/plan/tasks.h"
#include "scheduler/search/stage_facts.h"

namespace spillway {

/// A training step of a strategy without ops and homes: its units in the order of the program, and
/// what the ops of each stage exchange.
struct StepOutline {
  /// What an op reads and makes: boundaries, gradients and the batch, each one of a virtual node.
  struct Exchange {
    std::vector<int> inputs, outputs;
  };

  /// `table` and `strategy` outlive it.
  StepOutline(StageTable& table, const Strategy& strategy, int slots);

  const Exchange& exchange(const Task& task) const {
    return (task.kind == OpKind::backward ? backward : forward)[at(task.stage)];
  }
  Bytes workspace(const Task& task) const {
    const StageFacts& facts = *stages[at(task.stage)];
    return task.kind == OpKind::backward ? facts.backward_workspace : facts.forward_workspace;
  }
  const std::vector<Cell>& cells(int stage) const { return strategy.stages[at(stage)].cells; }

  const Strategy& strategy;
  std::vector<const StageFacts*> stages;
  std::vector<Bytes> graphs;  ///< by stage; 0: none is kept
  std::vector<Task> tasks;
  std::vector<int> order;                   ///< of the tasks
  std::vector<std::vector<int>> leaves;     ///< by task: see leaving_weights()
  std::vector<Exchange> forward, backward;  ///< by stage
  std::vector<Bytes> bytes;                 ///< by what is exchanged

 private:
  OpCost op_cost() const;
  void choose_leaving();
};

}  // namespace spillway
