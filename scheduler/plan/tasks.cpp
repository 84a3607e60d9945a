#include "scheduler/plan/tasks.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "spillway/ids.h"

namespace spillway {
namespace {

/// Makes the tasks of a program.
class TaskList {
 public:
  TaskList(const Strategy& strategy, const Cut& cut, const OpCost& cost)
      : strategy_(strategy),
        cut_(cut),
        cost_(cost),
        forward_(strategy.stages.size()),
        backward_(strategy.stages.size()) {}

  /// One task for each unit. `first_vn(group)` is the first virtual node of a group.
  template <typename FirstVn>
  void add(OpKind kind, int stage, const FirstVn& first_vn) {
    const std::vector<Cell>& cells = strategy_.stages[at(stage)].cells;
    const double cost = cost_(kind, stage);
    for (int c = 0; c < static_cast<int>(cells.size()); ++c) {
      const int begin = first_vn(cells[at(c)].groups.begin);
      const int end = first_vn(cells[at(c)].groups.end);
      const int chunk = strategy_.chunk == 0 ? end - begin : strategy_.chunk;
      for (int vn = begin; vn < end; vn += chunk) {
        const int last = std::min(vn + chunk, end);
        Task task{kind, stage, c, cells[at(c)].track, vn, last, cost * (last - vn), {}};
        if (vn > begin) task.after.push_back(static_cast<int>(tasks_.size()) - 1);
        of(kind, stage).push_back(static_cast<int>(tasks_.size()));
        tasks_.push_back(std::move(task));
      }
    }
  }

  /// The tasks of `stage` wait for those that make the boundaries which they read.
  void wait_for_inputs(OpKind kind, int stage) {
    for (int e : cut_.boundaries(stage).in) {
      for (const Cut::Part& part : cut_.parts(e)) {
        wait(kind, stage, kind == OpKind::backward ? OpKind::forward : kind, part.shard);
      }
    }
  }

  /// The backward tasks of `stage` wait for the gradients that they read, and for its forward,
  /// which reads what the gradients may replace at home.
  void wait_for_gradients(const ModelSpec& model, int stage) {
    const auto wait_for = [&](int reader) {
      wait(OpKind::backward, stage, OpKind::backward, reader);
    };
    wait(OpKind::backward, stage, OpKind::forward, stage);
    for (int e : cut_.boundaries(stage).in) {
      const EdgeSpec& edge = model.edges[at(e)];
      const int behind = cut_.next_reader(e, stage);
      if (has_gradient(edge) && edge.reading_pieces == 1 && behind >= 0) wait_for(behind);
    }
    for (int e : cut_.boundaries(stage).out) {
      if (!has_gradient(model.edges[at(e)])) continue;
      for (int reader : cut_.readers(e)) wait_for(reader);
    }
  }

  std::vector<Task> take() && { return std::move(tasks_); }

 private:
  std::vector<int>& of(OpKind kind, int stage) {
    return kind == OpKind::backward ? backward_[at(stage)] : forward_[at(stage)];
  }

  void wait(OpKind kind, int stage, OpKind for_kind, int for_stage) {
    const std::vector<int>& makers = of(for_kind, for_stage);
    for (int number : of(kind, stage)) {
      Task& task = tasks_[at(number)];
      auto maker = std::ranges::partition_point(
          makers, [&](int t) { return tasks_[at(t)].vn_end <= task.vn_begin; });
      for (; maker != makers.end() && tasks_[at(*maker)].vn_begin < task.vn_end; ++maker) {
        task.after.push_back(*maker);
      }
    }
  }

  const Strategy& strategy_;
  const Cut& cut_;
  const OpCost& cost_;
  std::vector<Task> tasks_;
  std::vector<std::vector<int>> forward_, backward_;  // by stage; evaluation: forward
};

/// Runs the tasks on a clock of its own and notes in which order each track begins them.
class ListScheduler {
 public:
  ListScheduler(const std::vector<Task>& tasks, const Strategy& strategy)
      : tasks_(tasks),
        strategy_(strategy),
        dependents_(tasks.size()),
        waits_for_(tasks.size()),
        tracks_(at(strategy.tracks)) {
    for (int t = 0; t < static_cast<int>(tasks.size()); ++t) {
      for (int before : tasks[at(t)].after) dependents_[at(before)].push_back(t);
      waits_for_[at(t)] = tasks[at(t)].after.size();
      ++track_of(t).unfinished[tasks[at(t)].vn_begin];
    }
  }

  /// By track.
  std::vector<std::vector<int>> run() {
    for (int t = 0; t < static_cast<int>(tasks_.size()); ++t) {
      if (waits_for_[at(t)] == 0) add_ready(t);
    }
    for (begin_tasks(); !running_.empty(); begin_tasks()) {
      const auto [end_s, task] = running_.top();
      running_.pop();
      now_s_ = end_s;
      finish(task);
    }
    std::vector<std::vector<int>> orders;
    for (Track& track : tracks_) orders.push_back(std::move(track.order));
    return orders;
  }

 private:
  /// Smaller is better: the direction, then the lowest virtual node; of stages, the last first in
  /// backward. If a unit has all virtual nodes of its cell, forward comes first, then the stage.
  using Rank = std::tuple<int, int, int>;
  using Ready = std::set<std::pair<Rank, int>>;
  struct Track {
    Ready ready;
    std::map<int, int> unfinished;  // tasks, by their first virtual node
    std::vector<int> order;
    bool is_busy = false;
  };

  Rank rank(const Task& task) const {
    const bool is_backward = task.kind == OpKind::backward;
    const int stage = is_backward ? -task.stage : task.stage;
    if (strategy_.chunk == 0) return {is_backward ? 1 : 0, stage, task.vn_begin};
    const bool is_first = is_backward == (strategy_.first == FirstChoice::backward);
    return {is_first ? 0 : 1, task.vn_begin, stage};
  }

  Track& track_of(int task) { return tracks_[at(tasks_[at(task)].track)]; }

  void add_ready(int task) {
    track_of(task).ready.insert({rank(tasks_[at(task)]), task});
    touched_.push_back(tasks_[at(task)].track);
  }

  void begin_tasks() {
    for (int t : touched_) begin_next(tracks_[at(t)]);
    touched_.clear();
    if (!running_.empty()) return;
    // A unit of another track waits for one that is held back.
    const auto first = std::ranges::min_element(tracks_, [](const Track& a, const Track& b) {
      return !a.ready.empty() && (b.ready.empty() || *a.ready.begin() < *b.ready.begin());
    });
    if (!first->ready.empty()) begin(*first, first->ready.begin());
  }

  /// Counts lower virtual nodes only, so the lowest may always begin.
  bool is_held(const Track& track, const Task& task) const {
    if (strategy_.window == 0 || task.kind == OpKind::backward) return false;
    const auto lower =
        std::distance(track.unfinished.begin(), track.unfinished.find(task.vn_begin));
    return lower >= strategy_.window;
  }

  void begin_next(Track& track) {
    if (track.is_busy) return;
    const auto next = std::ranges::find_if(
        track.ready, [&](const auto& item) { return !is_held(track, tasks_[at(item.second)]); });
    if (next != track.ready.end()) begin(track, next);
  }

  void begin(Track& track, Ready::iterator next) {
    const int task = next->second;
    track.ready.erase(next);
    track.order.push_back(task);
    track.is_busy = true;
    running_.emplace(now_s_ + tasks_[at(task)].cost_s, task);
  }

  void finish(int task) {
    Track& track = track_of(task);
    track.is_busy = false;
    touched_.push_back(tasks_[at(task)].track);
    const auto unfinished = track.unfinished.find(tasks_[at(task)].vn_begin);
    if (--unfinished->second == 0) track.unfinished.erase(unfinished);
    for (int dependent : dependents_[at(task)]) {
      if (--waits_for_[at(dependent)] == 0) add_ready(dependent);
    }
  }

  using End = std::pair<double, int>;  // of a task
  const std::vector<Task>& tasks_;
  const Strategy& strategy_;
  std::vector<std::vector<int>> dependents_;
  std::vector<std::size_t> waits_for_;
  std::vector<Track> tracks_;
  std::vector<int> touched_;  // tracks that may begin a task
  std::priority_queue<End, std::vector<End>, std::greater<>> running_;
  double now_s_ = 0;
};

}  // namespace

double expected_cost(OpKind kind, double forward_s, double backward_s, bool has_graph) {
  if (kind != OpKind::backward) return forward_s;
  return std::max(backward_s - (has_graph ? forward_s : 0), 0.);
}

std::vector<Bytes> kept_graphs(const Strategy& strategy, const MemorySplit& split,
                               std::vector<Bytes> graphs) {
  const bool keeps = strategy.graphs == GraphChoice::keep && !split.dedicated_activations();
  const std::vector<bool> keeps_weights = strategy.keeps_weights();
  for (std::size_t s = 0; s < graphs.size(); ++s) {
    if (!keeps || !keeps_weights[s] || s + 1 == graphs.size()) graphs[s] = 0;
  }
  return graphs;
}

std::vector<Task> training_tasks(const ModelSpec& model, const JobShape& shape,
                                 const Strategy& strategy, const Cut& cut,
                                 const HasBackward& has_backward, const OpCost& cost) {
  const int stages = static_cast<int>(strategy.stages.size());
  const auto first_vn = [&](int group) { return shape.first_vn(group); };
  TaskList tasks(strategy, cut, cost);
  for (int s = 0; s + 1 < stages; ++s) tasks.add(OpKind::forward, s, first_vn);
  for (int s = stages - 1; s >= 0; --s) {
    if (has_backward[at(s)]) tasks.add(OpKind::backward, s, first_vn);
  }
  for (int s = 0; s < stages; ++s) {
    tasks.wait_for_inputs(OpKind::forward, s);
    tasks.wait_for_inputs(OpKind::backward, s);
    tasks.wait_for_gradients(model, s);
  }
  return std::move(tasks).take();
}

std::vector<Task> evaluation_tasks(const JobShape& shape, const Strategy& strategy, const Cut& cut,
                                   const OpCost& cost) {
  const auto first_vn = [&](int group) { return shape.first_eval_vn(group); };
  TaskList tasks(strategy, cut, cost);
  const int stages = static_cast<int>(strategy.stages.size());
  for (int s = 0; s < stages; ++s) tasks.add(OpKind::evaluate, s, first_vn);
  for (int s = 0; s < stages; ++s) tasks.wait_for_inputs(OpKind::evaluate, s);
  return std::move(tasks).take();
}

std::vector<int> planned_order(const std::vector<Task>& tasks, const Strategy& strategy) {
  const std::vector<std::vector<int>> tracks = ListScheduler(tasks, strategy).run();
  std::vector<int> order;
  std::vector<std::size_t> next(tracks.size());
  std::vector<bool> is_placed(tasks.size());
  const auto may_come = [&](int task) {
    return std::ranges::all_of(tasks[at(task)].after, [&](int t) { return is_placed[at(t)]; });
  };
  while (order.size() < tasks.size()) {
    for (std::size_t t = 0; t < tracks.size(); ++t) {
      for (; next[t] < tracks[t].size() && may_come(tracks[t][next[t]]); ++next[t]) {
        order.push_back(tracks[t][next[t]]);
        is_placed[at(order.back())] = true;
      }
    }
  }
  return order;
}

std::vector<std::vector<int>> leaving_weights(const std::vector<UnitWeights>& track) {
  std::vector<std::vector<int>> leaving(track.size());
  std::vector<bool> is_used;  // by buffer: by a later unit
  for (std::size_t i = track.size(); i-- > 0;) {
    const std::vector<int>& weights = *track[i].weights;
    const UnitWeights* next = i + 1 < track.size() ? &track[i + 1] : nullptr;
    const bool keeps_set = next != nullptr && next->set == track[i].set;
    if (!weights.empty()) is_used.resize(std::max(is_used.size(), at(weights.back()) + 1));
    for (int b : weights) {
      const bool is_next = next != nullptr && std::ranges::binary_search(*next->weights, b);
      if (!is_next && !(keeps_set && is_used[at(b)])) leaving[i].push_back(b);
      is_used[at(b)] = true;
    }
  }
  return leaving;
}

FoldPlan plan_fold(GroupRange cell, int groups, int vns_per_group) {
  FoldPlan plan;
  std::map<int, int> slot_of;  // first group of a live subtree -> slot
  std::vector<int> free_slots;
  for (int g = cell.begin; g < cell.end; ++g) {
    if (free_slots.empty()) free_slots.push_back(plan.num_slots++);
    const int slot = free_slots.back();
    free_slots.pop_back();
    slot_of[g] = slot;
    for (int i = 0; i < vns_per_group; ++i) plan.steps.push_back({slot, i == 0, {}});
    int first = g;
    for (int size = 1; size < groups; size *= 2) {
      const bool is_left = first % (2 * size) == 0;
      if (is_left && first + size < groups) break;  // right sibling not yet summed
      if (is_left) continue;                        // no right sibling: skip this level
      if (first - size < cell.begin) break;         // left sibling belongs to another cell
      const int into = slot_of.at(first - size), from = slot_of.at(first);
      plan.steps.back().merges.push_back({into, from});
      free_slots.push_back(from);
      slot_of.erase(first);
      first -= size;
    }
  }
  for (const auto& [first, slot] : slot_of) plan.roots.emplace_back(first, slot);
  return plan;
}

}  // namespace spillway
