#include "scheduler/plan/lower.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <set>
#include <span>
#include <utility>

#include "core/base/divisor.h"
#include "scheduler/plan/cut.h"
#include "scheduler/plan/host_exchange.h"
#include "scheduler/plan/layout.h"
#include "scheduler/plan/need.h"
#include "scheduler/plan/program_index.h"
#include "scheduler/plan/stage_ops.h"
#include "scheduler/plan/tasks.h"
#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

/// Builds the program of one step kind.
class ProgramBuilder {
 public:
  ProgramBuilder(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                 const JobPlan& plan, const Cut& cut, const std::vector<RangeNeed>& needs,
                 const std::vector<Bytes>& graphs, LayoutBuilder& buffers)
      : model_(model),
        profile_(profile),
        shape_(shape),
        plan_(plan),
        cut_(cut),
        needs_(needs),
        graphs_(graphs),
        buffers_(buffers),
        ops_(model, cut, reads_batch(needs), buffers),
        exchange_(model, shape, buffers) {}

  std::shared_ptr<const Program> build(StepKind step_kind) {
    program_.track_units.resize(at(plan_.strategy.tracks));
    add_loads(step_kind);
    if (step_kind.update) add_updates();
    if (step_kind.evaluate) add_evaluation();
    if (step_kind.train) add_training();
    if (step_kind.finish) add_finish();
    choose_leaving();
    index(program_, buffers_.layout().buffers);
    program_.commits = step_kind.train;
    program_.finishes = step_kind.finish;
    return std::make_shared<const Program>(std::move(program_));
  }

 private:
  static std::vector<bool> reads_batch(const std::vector<RangeNeed>& needs) {
    std::vector<bool> found;
    for (const RangeNeed& need : needs) found.push_back(need.reads_batch());
    return found;
  }
  int num_stages() const { return static_cast<int>(plan_.strategy.stages.size()); }
  int num_layers() const { return static_cast<int>(model_.layers.size()); }
  int add_host_op(HostOpSpec op) {
    program_.host_ops.push_back(std::move(op));
    return static_cast<int>(program_.host_ops.size()) - 1;
  }

  /// Host ops start in order, so loads come first: a batch must not wait for all updates.
  void add_loads(StepKind step_kind) {
    if (step_kind.evaluate)
      eval_load_ = add_host_op({.kind = HostOpKind::load, .index = 1, .cost_s = profile_.load_s});
    if (step_kind.train) load_ = add_host_op({.kind = HostOpKind::load, .cost_s = profile_.load_s});
  }

  void add_updates() {
    const Layout& layout = buffers_.layout();
    struct Updated {
      Bytes all = 0, largest = 0;  ///< of its parameters; threads share one after the other
    };
    std::map<int, Updated> updated;  // by buffer
    for (std::size_t p = 0; p < model_.params.size(); ++p) {
      if (!model_.params[p].trainable) continue;
      const Layout::ParamPlace& place = layout.params[p];
      const Bytes bytes =
          static_cast<Bytes>(place.kept.size()) * size_of(model_.params[p].master().dtype);
      Updated& block = updated[place.weights_buffer];
      block.all += bytes;
      block.largest = std::max(block.largest, bytes);
    }
    for (int buffer : layout.weights) {
      const auto& [all, largest] = updated[buffer];
      HostOpSpec update{.kind = HostOpKind::update,
                        .index = buffer,
                        .cost_s = static_cast<double>(all) / profile_.update_bytes_per_s,
                        .grains = host_grains(largest)};
      std::vector<Transfer> spread;
      if (layout.is_sharded()) spread = exchange_.spread(buffer);
      const bool is_divided = !spread.empty();
      if (is_divided) update.kind = HostOpKind::update_part;
      int last = add_host_op(std::move(update));
      if (is_divided) {
        last = add_exchange(buffer, std::move(spread), {}, {last});
        last =
            add_host_op({.kind = HostOpKind::take_weights, .index = buffer, .host_deps = {last}});
      }
      update_of_[buffer] = last;
    }
  }

  std::vector<int> weights_of(LayerRange layers) const {
    std::set<int> found;
    for (int l = layers.begin; l < layers.end; ++l) {
      const auto& used = buffers_.layout().layers[at(l)].weights_buffers;
      found.insert(used.begin(), used.end());
    }
    return {found.begin(), found.end()};
  }

  std::vector<int> host_deps(const UnitSpec& unit, bool reads_batch, int load) const {
    std::vector<int> deps;
    for (int buffer : unit.weights) {
      if (const auto update = update_of_.find(buffer); update != update_of_.end()) {
        deps.push_back(update->second);
      }
    }
    if (reads_batch) deps.push_back(load);
    return deps;
  }

  /// Appends the unit of a task. `load`: the host op that reads its batch.
  int add_unit(const Task& task, int load) {
    const RangeNeed& need = needs_[at(task.stage)];
    UnitSpec unit{.track = task.track,
                  .cell = task.cell,
                  .kind = task.kind,
                  .layers = plan_.strategy.stages[at(task.stage)].layers};
    unit.weights = weights_of(unit.layers);
    unit.host_deps = host_deps(unit, need.reads_batch(), load);
    unit.first_op = static_cast<int>(program_.ops.size());
    unit.num_ops = task.vn_end - task.vn_begin;
    const bool is_backward = task.kind == OpKind::backward;
    const bool is_last = is_backward && task.vn_end == end_of(task);
    if (is_backward) unit.sums = buffers_.sums(task.stage, task.cell);
    if (is_last) unit.drains = buffers_.drains(task.stage, task.cell);
    const Bytes workspace = (is_backward ? need.backward() : need.forward()).workspace;
    if (!shape_.split.dedicated_activations()) unit.workspace = workspace;
    const double merge_s = merge_s_of(unit.layers);
    for (int vn = task.vn_begin; vn < task.vn_end; ++vn) {
      OpSpec op = ops_.make(task.kind, task.stage, vn);
      op.layers = unit.layers;
      op.workspace = workspace;
      if (is_backward) op.fold = fold_step(task, vn);
      op.num_numbers = numbers_of(unit, is_last && vn + 1 == task.vn_end);
      const double merges_s = static_cast<double>(op.fold.merges.size()) * merge_s;
      op.cost_s = cost_of(task.kind, unit.layers) + merges_s;
      op.cost_kept_s = expected_cost(task.kind, task.stage) + merges_s;
      unit.cost_s += op.cost_kept_s;
      if (graphs_[at(task.stage)] > 0 && task.kind != OpKind::evaluate) {
        op.graph = buffers_.graph(task.stage, vn, graphs_[at(task.stage)]);
      }
      program_.ops.push_back(std::move(op));
    }
    const OpSpec& first = program_.ops[at(unit.first_op)];
    for (const auto* pieces : {&first.inputs, &first.outputs}) {
      for (int b : *pieces) unit.op_area.push_back(buffers_.layout().buffers[at(b)].bytes);
    }
    program_.compute_s += unit.cost_s;
    const int number = static_cast<int>(program_.units.size());
    program_.track_units[at(unit.track)].push_back(number);
    set_of_unit_.push_back(plan_.strategy.stages[at(task.stage)].set);
    program_.units.push_back(std::move(unit));
    return number;
  }

  GroupRange groups_of(const Task& task) const {
    return plan_.strategy.stages[at(task.stage)].cells[at(task.cell)].groups;
  }
  /// One behind the last virtual node of the cell of a training task.
  int end_of(const Task& task) const {
    return groups_of(task).end * (shape_.virtual_nodes / shape_.groups);
  }
  FoldStep fold_step(const Task& task, int vn) const {
    const int begin = groups_of(task).begin * (shape_.virtual_nodes / shape_.groups);
    return buffers_.fold(task.stage, task.cell).steps[at(vn - begin)];
  }

  int numbers_of(const UnitSpec& unit, bool is_last) const {
    int numbers = unit.layers.end == num_layers() ? 1 : 0;
    if (unit.kind == OpKind::evaluate && numbers > 0) numbers += model_.num_metric_sums();
    if (!is_last) return numbers;
    for (int l = unit.layers.begin; l < unit.layers.end; ++l) {
      numbers += static_cast<int>(buffers_.layout().layers[at(l)].device_norms.size());
    }
    return numbers;
  }

  double merge_s_of(LayerRange layers) const {
    double seconds = 0;
    for (int l = layers.begin; l < layers.end; ++l) seconds += profile_.layers[at(l)].merge_s;
    return seconds;
  }

  double cost_of(OpKind kind, LayerRange layers) const {
    double cost = 0;
    for (int l = layers.begin; l < layers.end; ++l) {
      const LayerProfile& layer = profile_.layers[at(l)];
      cost += kind == OpKind::backward ? layer.backward_s : layer.forward_s;
    }
    return cost;
  }

  double expected_cost(OpKind kind, int stage) const {
    const LayerRange layers = plan_.strategy.stages[at(stage)].layers;
    return spillway::expected_cost(kind, cost_of(OpKind::forward, layers),
                                   cost_of(OpKind::backward, layers), graphs_[at(stage)] > 0);
  }

  OpCost op_cost() const {
    return [this](OpKind kind, int stage) { return expected_cost(kind, stage); };
  }

  void add_evaluation() {
    const TaskGraph graph = evaluation_tasks(shape_, plan_.strategy, cut_, op_cost());
    std::vector<int> units;
    for (int t : planned_order(graph, plan_.strategy)) {
      units.push_back(add_unit(graph.tasks[at(t)], eval_load_));
    }
    HostOpSpec finish{.kind = HostOpKind::finish_evaluation, .unit_deps = units};
    if (shape_.has_peers()) {
      finish.host_deps.push_back(add_exchange(kEvalNumbers, exchange_.eval_numbers(), units, {}));
    }
    evaluation_ = add_host_op(std::move(finish));
  }

  void add_training() {
    HasBackward has_backward;
    for (const RangeNeed& need : needs_) has_backward.push_back(need.has_backward());
    const TaskGraph graph =
        training_tasks(model_, shape_, plan_.strategy, cut_, has_backward, op_cost());
    std::vector<std::map<int, int>> last_units(plan_.strategy.stages.size());  // by stage, cell
    for (int t : planned_order(graph, plan_.strategy)) {
      const Task& task = graph.tasks[at(t)];
      const int unit = add_unit(task, load_);
      if (task.kind == OpKind::backward) last_units[at(task.stage)][task.cell] = unit;
    }
    add_commit(last_units);
  }

  void add_finish() {
    HostOpSpec finish{.kind = HostOpKind::finish};
    for (const auto& [buffer, update] : update_of_) finish.host_deps.push_back(update);
    if (evaluation_ >= 0) finish.host_deps.push_back(evaluation_);
    if (shape_.is_sharded()) {
      finish.host_deps.push_back(add_exchange(kLastState, {}, {}, finish.host_deps));
    }
    add_host_op(std::move(finish));
  }

  /// Layers in backward order, so that a tied parameter's last use is reduced first.
  /// `last_units`: by stage, the last backward unit of each cell.
  void add_commit(const std::vector<std::map<int, int>>& last_units) {
    HostOpSpec commit{.kind = HostOpKind::commit};
    for (const std::vector<int>& units : program_.track_units) {
      if (!units.empty()) commit.unit_deps.push_back(units.back());
    }
    if (evaluation_ >= 0) commit.host_deps.push_back(evaluation_);
    std::vector<int> norms;  // ops after which all squared norms of this host are known
    std::vector<std::vector<int>> reduces_of(model_.params.size());  // of later layers
    for (int s = num_stages() - 1; s >= 0; --s) {
      std::vector<int> units;
      for (const auto& [cell, unit] : last_units[at(s)]) units.push_back(unit);
      const LayerRange layers = plan_.strategy.stages[at(s)].layers;
      for (int l = layers.end - 1; l >= layers.begin; --l) {
        const Layout::LayerPlace& place = buffers_.layout().layers[at(l)];
        if (place.sum.bytes == 0) continue;
        HostOpSpec reduce = reduce_of(model_, profile_, l, place, place.merges.size());
        if (shape_.is_sharded()) {
          const double share = share_of(l, exchange_.own_parts(l));
          reduce.cost_s *= share;
          reduce.grains = std::max(1, static_cast<int>(share * reduce.grains));
        }
        reduce.unit_deps = units;
        reduce.host_deps = reduces_before(reduces_of, l);
        if (shape_.has_peers()) reduce.host_deps.push_back(add_sum_over_hosts(s, l, units));
        const int number = add_host_op(std::move(reduce));
        for (int p : model_.layers[at(l)].params) reduces_of[at(p)].push_back(number);
        commit.host_deps.push_back(number);
        if (shape_.is_sharded()) norms.push_back(number);
      }
    }
    // A host that has told its numbers lacks nothing else for the commit: see session_rescue.cpp.
    if (shape_.is_shadowed() && evaluation_ >= 0) norms.push_back(evaluation_);
    if (shape_.has_peers()) {
      commit.host_deps.push_back(
          add_exchange(kStepNumbers, exchange_.numbers(), commit.unit_deps, std::move(norms)));
    }
    add_host_op(std::move(commit));
  }

  int add_exchange(int layer, std::vector<Transfer> transfers, std::vector<int> units,
                   std::vector<int> host_ops) {
    return add_host_op({.kind = HostOpKind::exchange,
                        .index = layer,
                        .unit_deps = std::move(units),
                        .host_deps = std::move(host_ops),
                        .transfers = std::move(transfers)});
  }

  /// Of the packed sums of a layer.
  double share_of(int layer, const std::vector<HomeRange>& parts) const {
    Bytes bytes = 0;
    for (const HomeRange& part : parts) bytes += part.bytes;
    const Bytes packed = buffers_.layout().layers[at(layer)].sum.packed_bytes;
    return static_cast<double>(bytes) / static_cast<double>(packed);
  }

  /// Adds partial sums of a layer, bytes `parts` of them.
  int add_partials(int layer, std::vector<FoldStep::Merge> merges, std::vector<HomeRange> parts,
                   std::vector<int> units, std::vector<int> host_ops) {
    const double share = share_of(layer, parts);
    return add_host_op(
        {.kind = HostOpKind::add,
         .index = layer,
         .unit_deps = std::move(units),
         .host_deps = std::move(host_ops),
         .cost_s = static_cast<double>(merges.size()) * share * profile_.layers[at(layer)].merge_s,
         .merges = std::move(merges),
         .parts = std::move(parts)});
  }

  /// Each host finishes the subtrees of its groups, and the hosts add a part of the layer each.
  /// Unless their state is sharded, each gets the others' parts. Returns the last op; then the sum
  /// is whole, or what this host keeps of it.
  int add_sum_over_hosts(int stage, int layer, const std::vector<int>& units) {
    const Bytes packed = buffers_.layout().layers[at(layer)].sum.packed_bytes;
    std::vector<int> before;
    if (auto merges = exchange_.own_merges(stage); !merges.empty()) {
      before.push_back(add_partials(layer, std::move(merges), {{0, packed}}, units, {}));
    }
    int last = add_exchange(layer, exchange_.scatter(stage, layer), units, std::move(before));
    last = add_partials(layer, exchange_.merges(stage), exchange_.own_parts(layer), {}, {last});
    if (!shape_.is_sharded()) return add_exchange(layer, exchange_.gather(layer), {}, {last});
    return shape_.is_shadowed() ? add_exchange(layer, exchange_.shade(layer), {}, {last}) : last;
  }

  /// The reduces of later layers that share a parameter with this one, nearest first.
  std::vector<int> reduces_before(const std::vector<std::vector<int>>& of_params, int layer) const {
    std::set<int, std::greater<>> before;
    for (int p : model_.layers[at(layer)].params) {
      before.insert(of_params[at(p)].begin(), of_params[at(p)].end());
    }
    return {before.begin(), before.end()};
  }

  void choose_leaving() {
    for (const std::vector<int>& units : program_.track_units) {
      std::vector<UnitWeights> track;
      for (int u : units) track.push_back({&program_.units[at(u)].weights, set_of_unit_[at(u)]});
      const Grouped leaving = leaving_weights(track);
      for (int i = 0; i < static_cast<int>(units.size()); ++i) {
        const std::span<const int> leaves = leaving[i];
        program_.units[at(units[at(i)])].leaves.assign(leaves.begin(), leaves.end());
      }
    }
  }

  const ModelSpec& model_;
  const Profile& profile_;
  const JobShape& shape_;
  const JobPlan& plan_;
  const Cut& cut_;
  const std::vector<RangeNeed>& needs_;  // by stage
  const std::vector<Bytes>& graphs_;     // by stage: of a kept graph; 0: none is kept
  LayoutBuilder& buffers_;
  StageOps<LayoutBuilder> ops_;
  const HostExchange exchange_;
  Program program_;
  std::vector<int> set_of_unit_;
  std::map<int, int> update_of_;  // weights buffer -> host op
  int load_ = -1, eval_load_ = -1, evaluation_ = -1;
};

}  // namespace

std::vector<int> split_groups(int groups, int lanes) {
  assert(lanes >= 1 && lanes <= groups);
  return split_evenly(groups, lanes);
}

std::vector<GroupRange> lane_ranges(const JobShape& shape) {
  std::vector<GroupRange> ranges;
  const GroupRange own = shape.own_groups();
  int begin = own.begin;
  for (int size : shape.lane_groups) {
    ranges.push_back({begin, begin + size});
    begin += size;
  }
  assert(begin == own.end);
  return ranges;
}

StepKind JobPlan::step_kind(std::int64_t step) const {
  if (step >= max_steps) return finish_kind(step);
  const bool due = eval_steps > 0 && step > 0 && step % eval_steps == 0;
  return {.update = step > first_step, .evaluate = evaluates && due, .train = true};
}

namespace {

/// All programs that the job may need, the one with most boundaries first: building programs
/// numbers them.
std::vector<StepKind> all_kinds(const JobPlan& plan, const JobShape& shape) {
  std::vector<StepKind> kinds{{.update = true, .evaluate = plan.evaluates, .train = true}};
  for (std::int64_t step :
       {std::int64_t{0}, shape.first_step, shape.first_step + 1, shape.max_steps}) {
    kinds.push_back(plan.step_kind(std::min(step, shape.max_steps)));
  }
  kinds.push_back({.update = true, .evaluate = false, .train = true});
  for (std::int64_t step : {shape.first_step, shape.first_step + 1}) {
    kinds.push_back(plan.finish_kind(step));
    for (bool evaluate : {false, true}) kinds.push_back(plan.rest_kind(step, evaluate));
  }
  return kinds;
}

JobPlan lower(const ModelSpec& model, const Profile& profile, const JobShape& shape,
              Strategy strategy, bool only_a_step) {
  assert(!strategy.stages.empty() && strategy.stages.front().layers.begin == 0 &&
         strategy.stages.back().layers.end == static_cast<int>(model.layers.size()));
  JobPlan plan;
  plan.strategy = std::move(strategy);
  plan.first_step = shape.first_step;
  plan.max_steps = shape.max_steps;
  plan.eval_steps = shape.eval_steps;
  plan.evaluates = shape.eval_virtual_nodes > 0;
  const std::vector<LayerRange> layers = layers_of(plan.strategy);
  const Cut cut(model, layers);
  const NeedTable table(model, profile, shape, plan.strategy);
  std::vector<RangeNeed> needs;
  for (LayerRange range : layers) {
    needs.push_back(range_need(table, range));
    plan.needed_budget = std::max(plan.needed_budget, needs.back().largest().total(shape.split));
  }
  std::vector<Bytes> graphs;
  for (const RangeNeed& need : needs) graphs.push_back(need.graph());
  graphs = kept_graphs(plan.strategy, shape.split, std::move(graphs));
  LayoutBuilder buffers(model, shape, plan.strategy, cut);
  plan.programs.resize(StepKind::kNum);
  const auto kinds = only_a_step ? std::vector{kStepAfterStep} : all_kinds(plan, shape);
  for (const StepKind& kind : kinds) {
    auto& program = plan.programs[kind.index()];
    if (program) continue;
    program = ProgramBuilder(model, profile, shape, plan, cut, needs, graphs, buffers).build(kind);
    if (kind.train && !kind.evaluate) plan.step_s = program->compute_s;
  }
  plan.layout = std::move(buffers).finish();
  return plan;
}

}  // namespace

JobPlan lower(const ModelSpec& model, const Profile& profile, const JobShape& shape,
              Strategy strategy) {
  return lower(model, profile, shape, std::move(strategy), /*only_a_step=*/false);
}

JobPlan lower_step(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                   Strategy strategy) {
  return lower(model, profile, shape, std::move(strategy), /*only_a_step=*/true);
}

JobPlan lower(const ModelSpec& model, const Profile& profile, const JobShape& shape,
              const std::vector<LayerRange>& shards, bool vn_major) {
  JobPlan plan = lower(model, profile, shape, data_parallel(shards, lane_ranges(shape)));
  plan.vn_major = vn_major;
  return plan;
}

}  // namespace spillway
