#include "scheduler/search/step_outline.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Numbers what ops exchange, the same for each virtual node.
class ExchangeNumbers {
 public:
  explicit ExchangeNumbers(const ModelSpec& model) : model_(model), of_edge_(model.edges.size()) {}

  int boundary(EdgePart part, int) { return number(part, kValue); }
  int eval_boundary(EdgePart part, int) { return number(part, kValue); }
  int gradient(EdgePart part, int shard, int) { return number(part, shard); }
  int batch(int) { return number({batch_edge(model_), {}}, kValue); }
  int eval_batch(int vn) { return batch(vn); }
  std::vector<Bytes> take_bytes() && { return std::move(bytes_); }

 private:
  static constexpr int kValue = -1;
  struct Known {
    LeafRange pieces;
    int shard = 0, number = 0;
  };

  int number(EdgePart part, int shard) {
    std::vector<Known>& known = of_edge_[at(part.edge)];
    const auto found = std::ranges::find_if(
        known, [&](const Known& k) { return k.shard == shard && k.pieces == part.pieces; });
    if (found != known.end()) return found->number;
    const int next = static_cast<int>(bytes_.size());
    known.push_back({part.pieces, shard, next});
    bytes_.push_back(round_up(model_.edges[at(part.edge)].tensor.bytes(), kAlignment));
    return next;
  }

  const ModelSpec& model_;
  std::vector<std::vector<Known>> of_edge_;
  std::vector<Bytes> bytes_;
};

}  // namespace

StepOutline::StepOutline(StageTable& table, const Strategy& placed, int slots) : strategy(placed) {
  const std::vector<LayerRange> layers = layers_of(strategy);
  HasBackward has_backward;
  std::vector<bool> reads_batch;
  for (LayerRange each : layers) {
    const StageFacts& facts = table.facts(each, slots);
    stages.push_back(&facts);
    has_backward.push_back(facts.has_backward);
    reads_batch.push_back(facts.reads_batch);
    graphs.push_back(facts.graph);
  }
  graphs = kept_graphs(strategy, table.shape().split, std::move(graphs));
  const Cut cut(table.model(), layers);
  tasks = training_tasks(table.model(), table.shape(), strategy, cut, has_backward, op_cost());
  order = planned_order(tasks, strategy);
  choose_leaving();
  ExchangeNumbers numbers(table.model());
  StageOps ops(table.model(), cut, reads_batch, numbers);
  for (int s = 0; s < static_cast<int>(layers.size()); ++s) {
    for (auto [kind, exchanges] :
         {std::pair(OpKind::forward, &forward), std::pair(OpKind::backward, &backward)}) {
      OpSpec op = ops.make(kind, s, 0);
      exchanges->push_back({std::move(op.inputs), std::move(op.outputs)});
    }
  }
  bytes = std::move(numbers).take_bytes();
}

OpCost StepOutline::op_cost() const {
  return [this](OpKind kind, int stage) {
    const StageFacts& facts = *stages[at(stage)];
    return expected_cost(kind, facts.forward_s, facts.backward_s, graphs[at(stage)] > 0);
  };
}

void StepOutline::choose_leaving() {
  std::vector<std::vector<UnitWeights>> units(at(strategy.tracks));
  std::vector<std::vector<int>> numbers(at(strategy.tracks));
  for (int t : order) {
    const Task& task = tasks[at(t)];
    const int set = strategy.stages[at(task.stage)].set;
    units[at(task.track)].push_back({&stages[at(task.stage)]->weights, set});
    numbers[at(task.track)].push_back(t);
  }
  leaves.resize(tasks.size());
  for (std::size_t track = 0; track < units.size(); ++track) {
    std::vector<std::vector<int>> leaving = leaving_weights(units[track]);
    for (std::size_t i = 0; i < leaving.size(); ++i) {
      leaves[at(numbers[track][i])] = std::move(leaving[i]);
    }
  }
}

}  // namespace spillway
