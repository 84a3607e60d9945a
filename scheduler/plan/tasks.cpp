#include "scheduler/plan/tasks.h"

#include <algorithm>
#include <boost/dynamic_bitset.hpp>
#include <map>
#include <queue>
#include <utility>

#include "spillway/ids.h"

namespace spillway {
namespace {

/// Makes the tasks of a program.
class TaskList {
 public:
  TaskList(const Strategy& strategy, const Cut& cut, const OpCost& cost)
      : strategy_(strategy), cut_(cut), cost_(cost), ranges_(2 * strategy.stages.size()) {}

  /// One task for each unit. `first_vn(group)` is the first virtual node of a group.
  template <typename FirstVn>
  void add(OpKind kind, int stage, const FirstVn& first_vn) {
    const std::vector<Cell>& cells = strategy_.stages[at(stage)].cells;
    const double cost = cost_(kind, stage);
    Range& range = of(kind, stage);
    range.begin = size();
    for (int c = 0; c < static_cast<int>(cells.size()); ++c) {
      const int begin = first_vn(cells[at(c)].groups.begin);
      const int end = first_vn(cells[at(c)].groups.end);
      const int chunk = strategy_.chunk == 0 ? end - begin : strategy_.chunk;
      for (int vn = begin; vn < end; vn += chunk) {
        const int last = std::min(vn + chunk, end);
        if (vn > begin) after_.push_back({size(), size() - 1});
        tasks_.push_back({kind, stage, c, cells[at(c)].track, vn, last, cost * (last - vn)});
      }
    }
    range.end = size();
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

  TaskGraph take() && {
    Grouped after(tasks_.size(), after_);
    return {std::move(tasks_), std::move(after)};
  }

 private:
  /// The tasks of a stage in one direction, ordered by virtual nodes.
  struct Range {
    int begin = 0, end = 0;
    const Range* last_waiting = nullptr;  ///< who was the last to wait for these
  };

  int size() const { return static_cast<int>(tasks_.size()); }
  Range& of(OpKind kind, int stage) {
    return ranges_[at(2 * stage + (kind == OpKind::backward ? 1 : 0))];
  }

  void wait(OpKind kind, int stage, OpKind for_kind, int for_stage) {
    const Range& waiting = of(kind, stage);
    Range& makers = of(for_kind, for_stage);
    if (std::exchange(makers.last_waiting, &waiting) == &waiting) return;
    int first = makers.begin;
    for (int t = waiting.begin; t < waiting.end; ++t) {
      const Task& task = tasks_[at(t)];
      while (first < makers.end && tasks_[at(first)].vn_end <= task.vn_begin) ++first;
      for (int m = first; m < makers.end && tasks_[at(m)].vn_begin < task.vn_end; ++m) {
        after_.push_back({t, m});
      }
    }
  }

  const Strategy& strategy_;
  const Cut& cut_;
  const OpCost& cost_;
  std::vector<Task> tasks_;
  std::vector<Grouped::Item> after_;  // by task
  std::vector<Range> ranges_;         // by stage and direction; evaluation: forward
};

/// Runs the tasks on a clock of its own and notes in which order each track begins them.
class ListScheduler {
 public:
  ListScheduler(const TaskGraph& graph, const Strategy& strategy)
      : tasks_(graph.tasks),
        strategy_(strategy),
        dependents_(graph.after.inverse(graph.tasks.size())),
        waits_for_(tasks_.size()),
        ranks_(tasks_.size()),
        places_(tasks_.size()),
        tracks_(at(strategy.tracks)) {
    for (std::size_t rank = 0; int t : ranked()) {
      Track& track = track_of(t);
      ranks_[at(t)] = rank++;
      places_[at(t)] = track.tasks.size();
      track.tasks.push_back(t);
      track.unfinished.resize(std::max(track.unfinished.size(), at(tasks_[at(t)].vn_begin) + 1));
      ++track.unfinished[at(tasks_[at(t)].vn_begin)];
      waits_for_[at(t)] = graph.after[t].size();
    }
    for (Track& track : tracks_) {
      track.ready.resize(track.tasks.size());
      track.order.reserve(track.tasks.size());
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
  struct Track {
    std::vector<int> tasks;         // the best first
    boost::dynamic_bitset<> ready;  // by position in `tasks`
    std::vector<int> unfinished;    // tasks, by their first virtual node
    std::vector<int> order;
    bool is_busy = false;
  };
  static constexpr std::size_t kNone = boost::dynamic_bitset<>::npos;

  /// The best first: of the preferred direction, then of the lowest virtual node, then as listed.
  /// If units have all virtual nodes of their cells: as listed.
  std::vector<int> ranked() const {
    std::vector<Grouped::Item> items;
    items.reserve(tasks_.size());
    int vns = 0;
    for (const Task& task : tasks_) vns = std::max(vns, task.vn_end);
    for (const Task& task : tasks_) {
      const bool is_backward = task.kind == OpKind::backward;
      const bool is_first = is_backward == (strategy_.first == FirstChoice::backward);
      const int group = strategy_.chunk == 0 ? 0 : task.vn_begin + (is_first ? 0 : vns);
      items.push_back({group, static_cast<int>(items.size())});
    }
    return Grouped(at(2 * vns), items).numbers();
  }

  Track& track_of(int task) { return tracks_[at(tasks_[at(task)].track)]; }

  void add_ready(int task) {
    track_of(task).ready.set(places_[at(task)]);
    touched_.push_back(tasks_[at(task)].track);
  }

  /// The rank of the best task that is ready.
  std::size_t best_rank(const Track& track) const {
    const std::size_t first = track.ready.find_first();
    return first == kNone ? kNone : ranks_[at(track.tasks[first])];
  }

  void begin_tasks() {
    for (int t : touched_) begin_next(tracks_[at(t)]);
    touched_.clear();
    if (!running_.empty()) return;
    // A unit of another track waits for one that is held back.
    const auto first =
        std::ranges::min_element(tracks_, {}, [&](const Track& track) { return best_rank(track); });
    if (best_rank(*first) != kNone) begin(*first, first->ready.find_first());
  }

  /// Counts lower virtual nodes only, so the lowest may always begin.
  bool is_held(const Track& track, const Task& task) const {
    if (strategy_.window == 0 || task.kind == OpKind::backward) return false;
    const auto begin = track.unfinished.begin();
    const auto is_there = [](int number) { return number > 0; };
    return std::count_if(begin, begin + task.vn_begin, is_there) >= strategy_.window;
  }

  void begin_next(Track& track) {
    if (track.is_busy) return;
    std::size_t next = track.ready.find_first();
    while (next != kNone && is_held(track, tasks_[at(track.tasks[next])])) {
      next = track.ready.find_next(next);
    }
    if (next != kNone) begin(track, next);
  }

  void begin(Track& track, std::size_t place) {
    const int task = track.tasks[place];
    track.ready.reset(place);
    track.order.push_back(task);
    track.is_busy = true;
    running_.emplace(now_s_ + tasks_[at(task)].cost_s, task);
  }

  void finish(int task) {
    Track& track = track_of(task);
    track.is_busy = false;
    touched_.push_back(tasks_[at(task)].track);
    --track.unfinished[at(tasks_[at(task)].vn_begin)];
    for (int dependent : dependents_[task]) {
      if (--waits_for_[at(dependent)] == 0) add_ready(dependent);
    }
  }

  using End = std::pair<double, int>;  // of a task
  const std::vector<Task>& tasks_;
  const Strategy& strategy_;
  const Grouped dependents_;
  std::vector<std::size_t> waits_for_, ranks_, places_;  // by task; places: in its track
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

TaskGraph training_tasks(const ModelSpec& model, const JobShape& shape, const Strategy& strategy,
                         const Cut& cut, const HasBackward& has_backward, const OpCost& cost) {
  const int stages = static_cast<int>(strategy.stages.size());
  const auto first_vn = [&](int group) { return shape.first_vn(group); };
  TaskList tasks(strategy, cut, cost);
  for (int s = 0; s + 1 < stages; ++s) tasks.add(OpKind::forward, s, first_vn);
  for (int s = stages - 1; s >= 0; --s) {
    if (has_backward[at(s)]) tasks.add(OpKind::backward, s, first_vn);
  }
  for (int s = 0; s < stages; ++s) {
    // The last stage has no forward. Each other backward waits for its forward.
    tasks.wait_for_inputs(s + 1 < stages ? OpKind::forward : OpKind::backward, s);
    tasks.wait_for_gradients(model, s);
  }
  return std::move(tasks).take();
}

TaskGraph evaluation_tasks(const JobShape& shape, const Strategy& strategy, const Cut& cut,
                           const OpCost& cost) {
  const auto first_vn = [&](int group) { return shape.first_eval_vn(group); };
  TaskList tasks(strategy, cut, cost);
  const int stages = static_cast<int>(strategy.stages.size());
  for (int s = 0; s < stages; ++s) tasks.add(OpKind::evaluate, s, first_vn);
  for (int s = 0; s < stages; ++s) tasks.wait_for_inputs(OpKind::evaluate, s);
  return std::move(tasks).take();
}

std::vector<int> planned_order(const TaskGraph& graph, const Strategy& strategy) {
  const std::vector<std::vector<int>> tracks = ListScheduler(graph, strategy).run();
  const std::size_t size = graph.tasks.size();
  std::vector<int> order;
  order.reserve(size);
  std::vector<std::size_t> next(tracks.size());
  std::vector<bool> is_placed(size);
  const auto may_come = [&](int task) {
    return std::ranges::all_of(graph.after[task], [&](int t) { return is_placed[at(t)]; });
  };
  while (order.size() < size) {
    for (std::size_t t = 0; t < tracks.size(); ++t) {
      for (; next[t] < tracks[t].size() && may_come(tracks[t][next[t]]); ++next[t]) {
        order.push_back(tracks[t][next[t]]);
        is_placed[at(order.back())] = true;
      }
    }
  }
  return order;
}

Grouped leaving_weights(const std::vector<UnitWeights>& track) {
  std::vector<Grouped::Item> leaving;
  std::vector<bool> is_used;  // by buffer: by a later unit
  for (std::size_t i = track.size(); i-- > 0;) {
    const std::vector<int>& weights = *track[i].weights;
    const UnitWeights* next = i + 1 < track.size() ? &track[i + 1] : nullptr;
    const bool keeps_set = next != nullptr && next->set == track[i].set;
    if (!weights.empty()) is_used.resize(std::max(is_used.size(), at(weights.back()) + 1));
    for (int b : weights) {
      const bool is_next = next != nullptr && std::ranges::binary_search(*next->weights, b);
      if (!is_next && !(keeps_set && is_used[at(b)])) leaving.push_back({static_cast<int>(i), b});
      is_used[at(b)] = true;
    }
  }
  return {track.size(), leaving};
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
