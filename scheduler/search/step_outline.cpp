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
  for (LayerRange each : layers) {
    const StageFacts& facts = table.facts(each, slots);
    stages.push_back(&facts);
    has_backward.push_back(facts.has_backward);
    graphs.push_back(facts.graph);
  }
  for (const Stage& stage : strategy.stages) {
    first_cells.push_back(static_cast<int>(folds.size()));
    for (const Cell& cell : stage.cells) folds.push_back(&table.fold(cell.groups));
  }
  graphs = kept_graphs(strategy, table.shape().split, std::move(graphs));
  const Cut cut(table.model(), layers);
  graph = training_tasks(table.model(), table.shape(), strategy, cut, has_backward, op_cost());
  order = planned_order(graph, strategy);
  choose_leaving();
  exchange(table, cut);
}

void StepOutline::exchange(StageTable& table, const Cut& cut) {
  std::vector<bool> reads_batch;
  for (const StageFacts* facts : stages) reads_batch.push_back(facts->reads_batch);
  ExchangeNumbers numbers(table.model());
  StageOps ops(table.model(), cut, std::move(reads_batch), numbers);
  std::vector<Grouped::Item> read, made;
  for (int s = 0; s < static_cast<int>(stages.size()); ++s) {
    for (OpKind kind : {OpKind::forward, OpKind::backward}) {
      const int op = StepOutline::op(kind, s);
      const auto add_input = [&](int e) { read.push_back({op, e}); };
      const auto add_output = [&](int e) { made.push_back({op, e}); };
      ops.for_each(kind, s, 0, add_input, add_output);
    }
  }
  inputs_ = Grouped(2 * stages.size(), read);
  outputs_ = Grouped(2 * stages.size(), made);
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
    const Task& task = graph.tasks[at(t)];
    units[at(task.track)].push_back({&facts(task).weights, strategy.stages[at(task.stage)].set});
    numbers[at(task.track)].push_back(t);
  }
  std::vector<Grouped::Item> leaving;  // by task
  for (std::size_t track = 0; track < units.size(); ++track) {
    const Grouped of_track = leaving_weights(units[track]);
    for (int i = 0; i < static_cast<int>(units[track].size()); ++i) {
      for (int w : of_track[i]) leaving.push_back({numbers[track][at(i)], w});
    }
  }
  leaves = Grouped(graph.tasks.size(), leaving);
}

}  // namespace spillway
