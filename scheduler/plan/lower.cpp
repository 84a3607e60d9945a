#include "scheduler/plan/lower.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "scheduler/plan/cut.h"
#include "scheduler/plan/layout.h"
#include "scheduler/plan/need.h"
#include "spillway/error.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

/// Builds the program of one step kind.
class ProgramBuilder {
 public:
  ProgramBuilder(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                 const JobPlan& plan, const Cut& cut, const std::vector<RangeNeed>& needs,
                 LayoutBuilder& buffers)
      : model_(model),
        profile_(profile),
        shape_(shape),
        plan_(plan),
        cut_(cut),
        needs_(needs),
        buffers_(buffers),
        first_backward_(static_cast<int>(std::ranges::find_if(needs, &RangeNeed::has_backward) -
                                         needs.begin())) {}

  std::shared_ptr<const Program> build(StepKind step_kind) {
    program_.lane_units.resize(plan_.lanes.size());
    add_loads(step_kind);
    if (step_kind.update) add_updates();
    if (step_kind.evaluate) add_evaluation();
    if (step_kind.train) add_training();
    if (step_kind.finish) add_finish();
    index_users();
    index_dependents();
    program_.commits = step_kind.train;
    program_.finishes = step_kind.finish;
    return std::make_shared<const Program>(std::move(program_));
  }

 private:
  int num_shards() const { return static_cast<int>(plan_.shards.size()); }
  int num_layers() const { return static_cast<int>(model_.layers.size()); }
  int add_host_op(HostOpSpec op) {
    program_.host_ops.push_back(std::move(op));
    return static_cast<int>(program_.host_ops.size()) - 1;
  }

  /// Host ops start in order, so loads come first: a batch must not wait for all updates.
  void add_loads(StepKind step_kind) {
    if (step_kind.evaluate)
      eval_load_ = add_host_op({HostOpKind::load, 1, {}, {}, profile_.load_s});
    if (step_kind.train) load_ = add_host_op({HostOpKind::load, 0, {}, {}, profile_.load_s});
  }

  void add_updates() {
    const Layout& layout = buffers_.layout();
    std::map<int, Bytes> updated;  // by buffer
    for (std::size_t p = 0; p < model_.params.size(); ++p) {
      const ParamSpec& param = model_.params[p];
      if (param.trainable) updated[layout.params[p].weights_buffer] += param.master().bytes();
    }
    for (int buffer : layout.weights) {
      const auto bytes = static_cast<double>(updated[buffer]);
      update_of_[buffer] =
          add_host_op({HostOpKind::update, buffer, {}, {}, bytes / profile_.update_bytes_per_s});
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

  std::vector<int> host_deps(const UnitSpec& unit, int load) const {
    std::vector<int> deps;
    for (int buffer : unit.weights) {
      if (const auto update = update_of_.find(buffer); update != update_of_.end()) {
        deps.push_back(update->second);
      }
    }
    if (need_of(unit).reads_batch()) deps.push_back(load);
    return deps;
  }

  /// Appends a unit whose ops `make_op(vn)` describes for vn in [vn_begin, vn_end).
  template <typename MakeOp>
  int add_unit(UnitSpec unit, int load, int vn_begin, int vn_end, const MakeOp& make_op) {
    unit.weights = weights_of(unit.layers);
    unit.host_deps = host_deps(unit, load);
    unit.first_op = static_cast<int>(program_.ops.size());
    unit.num_ops = vn_end - vn_begin;
    const RangeNeed& need = need_of(unit);
    const Bytes workspace =
        (unit.kind == OpKind::backward ? need.backward() : need.forward()).workspace;
    if (!shape_.split.dedicated_activations()) unit.workspace = workspace;
    const double cost = cost_of(unit.kind, unit.layers), merge_s = merge_s_of(unit.layers);
    for (int vn = vn_begin; vn < vn_end; ++vn) {
      OpSpec op = make_op(vn);
      op.kind = unit.kind;
      op.layers = unit.layers;
      op.vn = vn;
      op.workspace = workspace;
      op.num_numbers = numbers_of(unit, /*is_last=*/vn + 1 == vn_end);
      op.cost_s = cost + static_cast<double>(op.fold.merges.size()) * merge_s;
      unit.cost_s += op.cost_s;
      program_.ops.push_back(std::move(op));
    }
    const OpSpec& first = program_.ops[at(unit.first_op)];
    for (const auto* pieces : {&first.inputs, &first.outputs}) {
      for (int b : *pieces) unit.op_area.push_back(buffers_.layout().buffers[at(b)].bytes);
    }
    program_.compute_s += unit.cost_s;
    const int number = static_cast<int>(program_.units.size());
    program_.lane_units[at(unit.lane)].push_back(number);
    program_.units.push_back(std::move(unit));
    return number;
  }

  int numbers_of(const UnitSpec& unit, bool is_last) const {
    int numbers = unit.layers.end == num_layers() ? 1 : 0;
    if (unit.kind == OpKind::evaluate && numbers > 0) numbers += model_.num_metric_sums();
    if (unit.kind != OpKind::backward || !is_last) return numbers;
    for (int l = unit.layers.begin; l < unit.layers.end; ++l) {
      numbers += static_cast<int>(buffers_.layout().layers[at(l)].device_norms.size());
    }
    return numbers;
  }

  /// The bytes of a layer's sums that the host reads.
  Bytes reduced_bytes(int layer) const {
    const Layout::LayerPlace& place = buffers_.layout().layers[at(layer)];
    Bytes bytes = place.sum.packed_bytes;
    for (std::size_t i : place.device_norms) {
      const int p = model_.layers[at(layer)].params[i];
      bytes -= round_up(model_.params[at(p)].finished_sum().bytes(), kAlignment);
    }
    return bytes;
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

  void add_evaluation() {
    std::vector<int> units;
    const auto first_vn = [&](std::int64_t group) {  // divided like the groups
      return static_cast<int>(shape_.eval_virtual_nodes * group / shape_.groups);
    };
    for (int lane = 0; lane < static_cast<int>(plan_.lanes.size()); ++lane) {
      const int begin = first_vn(plan_.lanes[at(lane)].begin);
      const int end = first_vn(plan_.lanes[at(lane)].end);
      if (begin == end) continue;
      for (int s = 0; s < num_shards(); ++s) {
        UnitSpec unit{.lane = lane, .kind = OpKind::evaluate, .layers = plan_.shards[at(s)]};
        units.push_back(add_unit(std::move(unit), eval_load_, begin, end,
                                 [&](int vn) { return evaluation_op(s, vn); }));
      }
    }
    evaluation_ = add_host_op({HostOpKind::finish_evaluation, 0, std::move(units), {}, 0});
  }

  OpSpec evaluation_op(int s, int vn) {
    OpSpec op;
    const int batch = buffers_.layout().eval_batch[at(vn)];
    for (int e : cut_.boundaries(s).in) {
      for (const Cut::Part& part : cut_.parts(e)) {
        op.inputs.push_back(buffers_.eval_boundary({e, part.pieces}, vn));
        if (cut_.next_reader(e, s) < 0) op.frees.push_back(op.inputs.back());
      }
    }
    if (needs_[at(s)].reads_batch()) op.inputs.push_back(batch);
    if (s + 1 == num_shards()) op.frees.push_back(batch);
    for (EdgePart part : made_by(s)) op.outputs.push_back(buffers_.eval_boundary(part, vn));
    return op;
  }

  void add_training() {
    std::vector<std::vector<int>> backward_units(plan_.shards.size());  // by shard
    for (int lane = 0; lane < static_cast<int>(plan_.lanes.size()); ++lane) {
      const int per_group = shape_.virtual_nodes / shape_.groups;
      const int begin = plan_.lanes[at(lane)].begin * per_group;
      const int end = plan_.lanes[at(lane)].end * per_group;
      for (int s = 0; s + 1 < num_shards(); ++s) {
        UnitSpec unit{.lane = lane, .kind = OpKind::forward, .layers = plan_.shards[at(s)]};
        add_unit(std::move(unit), load_, begin, end, [&](int vn) { return forward_op(s, vn); });
      }
      for (int s = num_shards() - 1; s >= 0; --s) {
        if (!needs_[at(s)].has_backward()) continue;
        const LayerRange layers = plan_.shards[at(s)];
        UnitSpec unit{.lane = lane, .kind = OpKind::backward, .layers = layers};
        unit.sums = buffers_.sums(lane, layers);
        unit.drains = buffers_.drains(lane, layers);
        backward_units[at(s)].push_back(add_unit(std::move(unit), load_, begin, end, [&](int vn) {
          return backward_op(s, vn, lane, vn - begin);
        }));
      }
    }
    add_commit(backward_units);
  }

  void add_finish() {
    HostOpSpec finish{HostOpKind::finish, 0, {}, {}, 0};
    for (const auto& [buffer, update] : update_of_) finish.host_deps.push_back(update);
    if (evaluation_ >= 0) finish.host_deps.push_back(evaluation_);
    add_host_op(std::move(finish));
  }

  OpSpec forward_op(int s, int vn) {
    OpSpec op;
    for (int e : cut_.boundaries(s).in) {
      const bool is_last = last_reader_in_backward(e) < 0 && cut_.readers(e).back() == s;
      for (const Cut::Part& part : cut_.parts(e)) {
        op.inputs.push_back(buffers_.boundary({e, part.pieces}, vn));
        if (is_last) op.frees.push_back(op.inputs.back());
      }
    }
    if (needs_[at(s)].reads_batch()) {
      op.inputs.push_back(buffers_.layout().batch[at(vn)]);
    }
    for (EdgePart part : made_by(s)) op.outputs.push_back(buffers_.boundary(part, vn));
    return op;
  }

  /// The parts of boundaries that a shard makes for later ones.
  std::vector<EdgePart> made_by(int s) const {
    std::vector<EdgePart> made;
    for (int e : cut_.boundaries(s).out) {
      for (const Cut::Part& part : cut_.parts(e)) {
        if (part.shard == s) made.push_back({e, part.pieces});
      }
    }
    return made;
  }

  /// The buffers of a boundary's gradient that its makers read: those of all shards whose pieces
  /// read it, or the one to which the first reader has added.
  std::vector<int> gradients_for_makers(int edge, int vn) {
    std::vector<int> buffers;
    for (int reader : cut_.readers(edge)) {
      for (LeafRange part : cut_.gradient_parts(edge, reader)) {
        buffers.push_back(buffers_.gradient({edge, part}, reader, vn));
      }
      if (model_.edges[at(edge)].reading_pieces == 1) break;
    }
    return buffers;
  }

  OpSpec backward_op(int s, int vn, int lane, int vn_of_lane) {
    OpSpec op;
    const int batch = buffers_.layout().batch[at(vn)];
    const auto take = [&](int buffer, bool last_use) {
      op.inputs.push_back(buffer);
      if (last_use) op.frees.push_back(buffer);
    };
    for (int e : cut_.boundaries(s).in) {
      for (const Cut::Part& part : cut_.parts(e)) {
        take(buffers_.boundary({e, part.pieces}, vn), last_reader_in_backward(e) == s);
      }
      if (!has_gradient(model_.edges[at(e)])) continue;
      const int behind = cut_.next_reader(e, s);
      const bool is_summed_on = model_.edges[at(e)].reading_pieces == 1;
      if (behind >= 0 && is_summed_on) take(buffers_.gradient({e, {}}, behind, vn), true);
      for (LeafRange part : cut_.gradient_parts(e, s)) {
        op.outputs.push_back(buffers_.gradient({e, part}, s, vn));
      }
    }
    for (int e : cut_.boundaries(s).out) {
      if (!has_gradient(model_.edges[at(e)])) continue;
      const bool is_last_use = cut_.parts(e).front().shard == s;
      for (int buffer : gradients_for_makers(e, vn)) take(buffer, is_last_use);
    }
    if (needs_[at(s)].reads_batch()) take(batch, false);
    if (s == first_backward_) op.frees.push_back(batch);
    op.fold = buffers_.fold(lane).steps[at(vn_of_lane)];
    return op;
  }

  /// The shard whose backward is the last to read the edge; -1: none reads it.
  int last_reader_in_backward(int edge) const {
    const auto found = std::ranges::find_if(cut_.readers(edge),
                                            [&](int s) { return needs_[at(s)].has_backward(); });
    return found == cut_.readers(edge).end() ? -1 : *found;
  }

  const RangeNeed& need_of(const UnitSpec& unit) const {
    return needs_[at(shard_of(unit.layers.begin))];
  }

  int shard_of(int layer) const {
    const auto shard = std::ranges::upper_bound(plan_.shards, layer, {}, &LayerRange::begin);
    return static_cast<int>(shard - plan_.shards.begin()) - 1;
  }

  /// Layers in backward order, so that a tied parameter's last use is reduced first.
  void add_commit(const std::vector<std::vector<int>>& backward_units) {
    HostOpSpec commit{HostOpKind::commit, 0, backward_units[at(first_backward_)], {}, 0};
    if (evaluation_ >= 0) commit.host_deps.push_back(evaluation_);
    std::vector<std::vector<int>> reduces_of(model_.params.size());  // of later layers
    const auto merges = static_cast<double>(buffers_.layout().partials.size() - 1);
    for (int l = num_layers() - 1; l >= 0; --l) {
      if (buffers_.layout().layers[at(l)].sum.bytes == 0) continue;
      const double norm_s = static_cast<double>(reduced_bytes(l)) / profile_.reduce_bytes_per_s;
      HostOpSpec reduce{HostOpKind::reduce,
                        l,
                        backward_units[at(shard_of(l))],
                        {},
                        norm_s + merges * profile_.layers[at(l)].merge_s};
      reduce.host_deps = reduces_before(reduces_of, l);
      const int number = add_host_op(std::move(reduce));
      for (int p : model_.layers[at(l)].params) reduces_of[at(p)].push_back(number);
      commit.host_deps.push_back(number);
    }
    add_host_op(std::move(commit));
  }

  /// The reduces of later layers that share a parameter with this one, nearest first.
  std::vector<int> reduces_before(const std::vector<std::vector<int>>& of_params, int layer) const {
    std::set<int, std::greater<>> before;
    for (int p : model_.layers[at(layer)].params) {
      before.insert(of_params[at(p)].begin(), of_params[at(p)].end());
    }
    return {before.begin(), before.end()};
  }

  void index_users() {
    program_.unit_users.resize(buffers_.layout().buffers.size());
    for (std::size_t u = 0; u < program_.units.size(); ++u) {
      std::set<int> used(program_.units[u].weights.begin(), program_.units[u].weights.end());
      for (int i = 0; i < program_.units[u].num_ops; ++i) {
        const OpSpec& op = program_.ops[at(program_.units[u].first_op + i)];
        used.insert(op.inputs.begin(), op.inputs.end());
      }
      for (int b : used) program_.unit_users[at(b)].push_back(static_cast<int>(u));
    }
  }

  void index_dependents() {
    program_.host_ops_after_unit.resize(program_.units.size());
    program_.host_ops_after_host.resize(program_.host_ops.size());
    program_.units_after_host.resize(program_.host_ops.size());
    for (std::size_t h = 0; h < program_.host_ops.size(); ++h) {
      const int number = static_cast<int>(h);
      for (int u : program_.host_ops[h].unit_deps) {
        program_.host_ops_after_unit[at(u)].push_back(number);
      }
      for (int before : program_.host_ops[h].host_deps) {
        program_.host_ops_after_host[at(before)].push_back(number);
      }
    }
    for (std::size_t u = 0; u < program_.units.size(); ++u) {
      for (int before : program_.units[u].host_deps) {
        program_.units_after_host[at(before)].push_back(static_cast<int>(u));
      }
    }
  }

  const ModelSpec& model_;
  const Profile& profile_;
  const JobShape& shape_;
  const JobPlan& plan_;
  const Cut& cut_;
  const std::vector<RangeNeed>& needs_;  // by shard
  LayoutBuilder& buffers_;
  const int first_backward_;  // shard
  Program program_;
  std::map<int, int> update_of_;  // weights buffer -> host op
  int load_ = -1, eval_load_ = -1, evaluation_ = -1;
};

}  // namespace

std::vector<int> split_groups(int groups, int lanes) {
  assert(lanes >= 1 && lanes <= groups);
  std::vector<int> sizes(at(lanes), groups / lanes);
  for (int lane = 0; lane < groups % lanes; ++lane) ++sizes[at(lane)];
  return sizes;
}

std::vector<GroupRange> lane_ranges(const JobShape& shape) {
  std::vector<GroupRange> ranges;
  int begin = 0;
  for (int size : shape.lane_groups) {
    ranges.push_back({begin, begin + size});
    begin += size;
  }
  assert(begin == shape.groups);
  return ranges;
}

StepKind JobPlan::step_kind(std::int64_t step) const {
  if (step >= max_steps) return finish_kind(step);
  const bool due = eval_steps > 0 && step > 0 && step % eval_steps == 0;
  return {.update = step > first_step, .evaluate = evaluates && due, .train = true};
}

JobPlan lower(const ModelSpec& model, const Profile& profile, const JobShape& shape,
              std::vector<LayerRange> shards, bool vn_major) {
  assert(!shards.empty() && shards.front().begin == 0 &&
         shards.back().end == static_cast<int>(model.layers.size()));
  JobPlan plan;
  plan.shards = std::move(shards);
  plan.vn_major = vn_major;
  plan.lanes = lane_ranges(shape);
  plan.first_step = shape.first_step;
  plan.max_steps = shape.max_steps;
  plan.eval_steps = shape.eval_steps;
  plan.evaluates = shape.eval_virtual_nodes > 0;
  const Cut cut(model, plan.shards);
  const NeedTable table(model, profile, shape);
  std::vector<RangeNeed> needs;
  for (LayerRange shard : plan.shards) {
    needs.push_back(range_need(table, shard));
    plan.needed_budget = std::max(plan.needed_budget, needs.back().largest().total(shape.split));
  }
  LayoutBuilder buffers(model, shape, plan.lanes, cut);
  // Building programs numbers the boundaries, so the program with most of them comes first.
  plan.programs.resize(StepKind::kNum);
  std::vector<StepKind> step_kinds{{.update = true, .evaluate = plan.evaluates, .train = true}};
  for (std::int64_t step :
       {std::int64_t{0}, shape.first_step, shape.first_step + 1, shape.max_steps}) {
    step_kinds.push_back(plan.step_kind(std::min(step, shape.max_steps)));
  }
  step_kinds.push_back({.update = true, .evaluate = false, .train = true});
  for (std::int64_t step : {shape.first_step, shape.first_step + 1}) {
    step_kinds.push_back(plan.finish_kind(step));
    for (bool evaluate : {false, true}) step_kinds.push_back(plan.rest_kind(step, evaluate));
  }
  for (const StepKind& step_kind : step_kinds) {
    auto& program = plan.programs[step_kind.index()];
    if (program) continue;
    program = ProgramBuilder(model, profile, shape, plan, cut, needs, buffers).build(step_kind);
  }
  plan.step_s =
      plan.programs[StepKind{.update = false, .evaluate = false, .train = true}.index()]->compute_s;
  plan.layout = std::move(buffers).finish();
  return plan;
}

}  // namespace spillway
