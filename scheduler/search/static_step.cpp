#include "scheduler/search/static_step.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "scheduler/search/step_outline.h"
#include "scheduler/simulation/copy_queues.h"
#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr double kAbsent = -1;

/// The state of a device during a pass over its track.
struct StaticDevice {
  std::size_t number = 0;
  double slowdown = 1;
  double op_start_s = 0;
  double compute_s = 0;  ///< when its compute queue is free
  double busy_s = 0;
  /// The last two ops: when they end, and their units.
  std::array<double, 2> ends{};
  std::array<int, 2> units{-1, -1};
  double issued_s = 0;    ///< when its last op was handed over
  double reserved_s = 0;  ///< when its last unit got its memory
  double drained_s = 0;   ///< when the sums of its last unit are at home
  bool is_long = false;   ///< that unit has more than the two ops that a queue holds
  Bytes workspace = 0;
  struct Change {
    double time_s = 0;
    std::int64_t bytes = 0;
  };
  bool notes_changes = false;
  std::vector<Change> memory;
  std::int64_t most_bytes = 0;  ///< of all that arrives: no peak is higher

  void change(double time_s, Bytes bytes, int sign) {
    if (bytes == 0) return;
    if (sign > 0) most_bytes += static_cast<std::int64_t>(bytes);
    if (notes_changes) memory.push_back({time_s, sign * static_cast<std::int64_t>(bytes)});
  }
};

using HostBegin = StepEstimator::HostBegin;

HostBegin host_begin(const JobPlan& whole, const VirtualCosts& costs) {
  HostBegin begin{.updated_s = std::vector<double>(whole.layout.buffers.size()),
                  .workers = HostWorkers(costs.host_workers)};
  for (const HostOpSpec& op : whole.programs[kStepAfterStep.index()]->host_ops) {
    const bool is_load = op.kind == HostOpKind::load;
    if (!is_load && op.kind != HostOpKind::update) continue;
    const auto span = begin.workers.run(costs.dispatch_latency_s, op.cost_s, op.grains);
    (is_load ? begin.loaded_s : begin.updated_s[at(op.index)]) = span.end_s;
  }
  return begin;
}

/// Passes over the units of a step.
class StaticStep {
 public:
  /// `tracks`: before the step. All outlive it.
  StaticStep(const StepOutline& step, StageTable& table, const HostBegin& begin,
             const std::vector<StaticDevice>& tracks, const VirtualCosts& costs)
      : step_(step),
        table_(table),
        begin_(begin),
        before_(tracks),
        costs_(costs),
        copies_(costs, 0),
        vns_(table.shape().virtual_nodes),
        num_weights_(begin.updated_s.size()) {}

  struct Pass {
    double contention = 1;      ///< the slowdown of compute
    double most_s = 0;          ///< the pass ends once the step must take longer
    bool notes_memory = false;  ///< for overflow_s()
  };
  struct Result {
    double step_s = 0;  ///< or a bound of it
    bool is_whole = false;
  };

  Result run(const Pass& pass) {
    clear();
    contention_ = pass.contention;
    for (StaticDevice& device : tracks_) device.notes_changes = pass.notes_memory;
    if (const double least_s = find_tails() / kRounding; least_s > pass.most_s) return {least_s};
    for (int number : step_.order) {
      run_unit(number, step_.graph.tasks[at(number)]);
      const double least_s = (ends_[at(number)] + tails_[at(number)]) / kRounding;
      if (least_s > pass.most_s) return {least_s};
    }
    return {commit_s(), true};
  }

  /// After run(): the threads that are busy on average while a device computes.
  double busy_threads(double step_s, std::size_t devices) const {
    double busy_s = 0;
    for (const StaticDevice& device : tracks_) busy_s += device.busy_s / device.slowdown;
    const auto number = static_cast<double>(devices);
    return 1 + busy_s / step_s * (number - 1) / number;
  }

  /// After run(), with any contention: whether there is room for all even if nothing ever left.
  bool has_ample_room(const EngineConfig& engine) const {
    return std::ranges::all_of(tracks_, [&](const StaticDevice& device) {
      return device.most_bytes <= room(device, engine);
    });
  }

  /// After run() with notes of memory: the time that copies of what has no room take, once, on the
  /// worst device.
  double overflow_s(const EngineConfig& engine) {
    note_boundaries();
    double most_s = 0;
    for (StaticDevice& device : tracks_) {
      const double bytes = overflow(device, room(device, engine));
      most_s = std::max(most_s, bytes / costs_.copy_rate_of(device.number));
    }
    return most_s;
  }

 private:
  static constexpr double kRounding = 1 + 1e-9;

  void clear() {
    tracks_ = before_;
    copies_ = CopyQueues(costs_, num_devices(tracks_));
    weights_there_.assign(tracks_.size() * num_weights_, kAbsent);
    sums_there_.assign(step_.folds.size(), kAbsent);
    const std::size_t exchanged = step_.bytes.size() * at(vns_);
    there_.assign(exchanged * tracks_.size(), kAbsent);
    makers_.assign(exchanged, -1);
    last_reads_.assign(exchanged, 0);
    ends_.assign(step_.graph.tasks.size(), 0);
    tails_.assign(step_.graph.tasks.size(), 0);
    drained_.assign(step_.stages.size(), 0);
  }

  StaticDevice& device(const Task& task) { return tracks_[at(task.track)]; }
  const StageFacts& facts(const Task& task) const { return step_.facts(task); }
  std::size_t buffer(int exchanged, int vn) const { return at(exchanged * vns_ + vn); }
  double& there(std::size_t buffer, const Task& task) {
    return there_[buffer * tracks_.size() + at(task.track)];
  }
  double& weights_there(int weights, int track) {
    return weights_there_[at(track) * num_weights_ + at(weights)];
  }
  Bytes weights_bytes(int weights) const {
    return table_.whole().layout.buffers[at(weights)].bytes;
  }
  const FoldPlan& fold(const Task& task) const { return *step_.folds[step_.cell(task)]; }

  /// Without merges, which come on top.
  double compute_s(const Task& task) {
    const StaticDevice& computing = device(task);
    return task.cost_s * computing.slowdown * contention_ +
           (task.vn_end - task.vn_begin) * computing.op_start_s;
  }

  /// For each task, a lower bound of the time from its end to the end of the step: the longest
  /// chain of tasks after it, with copies without bytes. Returns that of the whole step.
  double find_tails() {
    std::vector<double> of_tracks(tracks_.size());  // from the begin of the next task
    double step_s = 0;
    for (int number : std::views::reverse(step_.order)) {
      const Task& task = step_.graph.tasks[at(number)];
      double& tail_s = tails_[at(number)];
      tail_s = std::max(tail_s, of_tracks[at(task.track)]);
      const double from_begin_s = compute_s(task) + tail_s;
      of_tracks[at(task.track)] = from_begin_s;
      step_s = std::max(step_s, from_begin_s);
      for (int t : step_.graph.after[number]) {
        const double wait_s = least_wait_s(task, step_.graph.tasks[at(t)]);
        tails_[at(t)] = std::max(tails_[at(t)], wait_s + from_begin_s);
      }
    }
    return step_s;
  }

  /// From the end of a task to the begin of one after it. A copy for a later virtual node than the
  /// first passes while those before it compute.
  double least_wait_s(const Task& task, const Task& before) const {
    if (before.track == task.track) return 0;
    const bool has_first = before.vn_begin <= task.vn_begin && task.vn_begin < before.vn_end;
    return costs_.dispatch_latency_s + (has_first ? costs_.copy_latency_s : 0);
  }

  static std::size_t num_devices(const std::vector<StaticDevice>& tracks) {
    return std::ranges::max(tracks, {}, &StaticDevice::number).number + 1;
  }

  /// Loads weights at `now_s` if the device has none. Returns since when it has them.
  double load_weights(StaticDevice& device, double& there_s, Bytes bytes, double now_s) {
    if (there_s < 0) {
      there_s = copies_.from_host(costs_, device.number, bytes, now_s).end_s;
      device.change(now_s, bytes, 1);
    }
    return there_s;
  }

  /// The same for what ops exchange, from the track that made it, or from home.
  double load(const Task& task, int exchanged, int vn, double now_s) {
    StaticDevice& device = this->device(task);
    const std::size_t b = buffer(exchanged, vn);
    double& there_s = there(b, task);
    if (there_s >= 0) return there_s;
    const Bytes bytes = step_.bytes[at(exchanged)];
    const int maker = makers_[b];
    there_s = (maker < 0 ? copies_.from_host(costs_, device.number, bytes, now_s)
                         : copies_.from_device(costs_, device.number, tracks_[at(maker)].number,
                                               bytes, now_s))
                  .end_s;
    device.change(now_s, bytes, 1);
    return there_s;
  }

  double ready_s(int number, const Task& task) const {
    double ready_s = facts(task).reads_batch ? begin_.loaded_s : 0;
    for (int t : step_.graph.after[number]) {
      if (step_.graph.tasks[at(t)].track != task.track) ready_s = std::max(ready_s, ends_[at(t)]);
    }
    for (int w : facts(task).weights) ready_s = std::max(ready_s, begin_.updated_s[at(w)]);
    return ready_s;
  }

  void run_unit(int number, const Task& task) {
    StaticDevice& device = this->device(task);
    const double ready_s = this->ready_s(number, task);
    double reserved_s = std::max(ready_s, device.issued_s);
    // At most two units have memory.
    if (device.units[0] != device.units[1]) reserved_s = std::max(reserved_s, device.ends[0]);
    const double load_s = device.is_long ? std::max(ready_s, device.reserved_s) : reserved_s;
    double weights_s = 0;
    for (int w : facts(task).weights) {
      double& there_s = weights_there(w, task.track);
      weights_s = std::max(weights_s, load_weights(device, there_s, weights_bytes(w), load_s));
    }
    if (task.kind == OpKind::backward) reserve_sums(task, reserved_s);
    device.reserved_s = reserved_s;
    device.is_long = task.vn_end - task.vn_begin > 2;
    if (!table_.shape().split.dedicated_activations()) {
      device.workspace = std::max(device.workspace, step_.workspace(task));
    }
    std::array<double, kOpsAhead> issued{};
    issued.fill(reserved_s);
    for (int vn = task.vn_begin; vn < task.vn_end; ++vn) {
      double& ahead_s = issued[at((vn - task.vn_begin) % kOpsAhead)];
      run_op(number, task, vn, weights_s, ahead_s);
      ahead_s = device.issued_s;
    }
    ends_[at(number)] = device.ends[1];
    end_unit(number, task);
  }

  void reserve_sums(const Task& task, double now_s) {
    double& there_s = sums_there_[step_.cell(task)];
    if (there_s >= 0) return;
    there_s = now_s;
    device(task).change(now_s, facts(task).sums * at(fold(task).num_slots), 1);
  }

  double merge_s(const Task& task, int vn) {
    if (task.kind != OpKind::backward || facts(task).merge_s == 0) return 0;
    const JobShape& shape = table_.shape();
    const int first = shape.first_vn(step_.groups(task).begin);
    const auto merges = fold(task).steps[at(vn - first)].merges.size();
    return static_cast<double>(merges) * facts(task).merge_s;
  }

  /// `ahead_s`: when its inputs may be loaded.
  void run_op(int unit, const Task& task, int vn, double weights_s, double ahead_s) {
    StaticDevice& device = this->device(task);
    const double issued_s = std::max(device.reserved_s, device.ends[0]);
    const std::span<const int> inputs = step_.inputs(task);
    double data_s = weights_s;
    for (int e : inputs) data_s = std::max(data_s, load(task, e, vn, ahead_s));
    const double start_s =
        std::max({issued_s + costs_.dispatch_latency_s, device.compute_s, data_s});
    const double cost_s = task.cost_s / (task.vn_end - task.vn_begin) + merge_s(task, vn);
    const double seconds = cost_s * device.slowdown * contention_ + device.op_start_s;
    const double end_s = device.compute_s = start_s + seconds;
    device.busy_s += seconds;
    for (int e : inputs) {
      double& last_s = last_reads_[buffer(e, vn)];
      last_s = std::max(last_s, end_s);
    }
    for (int e : step_.outputs(task)) {
      there(buffer(e, vn), task) = end_s;
      makers_[buffer(e, vn)] = task.track;
      device.change(issued_s, step_.bytes[at(e)], 1);
    }
    const Bytes graph = step_.graphs[at(task.stage)];
    if (task.kind == OpKind::forward) device.change(issued_s, graph, 1);
    if (task.kind == OpKind::backward) device.change(end_s, graph, -1);
    device.ends = {device.ends[1], end_s};
    device.units = {device.units[1], unit};
    device.issued_s = issued_s;
  }

  void end_unit(int number, const Task& task) {
    StaticDevice& device = this->device(task);
    const double end_s = device.drained_s = device.ends[1];
    for (int w : step_.leaves[number]) {
      weights_there(w, task.track) = kAbsent;
      device.change(end_s, weights_bytes(w), -1);
    }
    const bool is_last = task.vn_end == table_.shape().first_vn(step_.groups(task).end);
    if (task.kind != OpKind::backward || !is_last) return;
    if (const Bytes packed = facts(task).packed_sums * fold(task).roots.size(); packed > 0) {
      device.drained_s = copies_.to_host(costs_, device.number, packed, end_s).end_s;
      device.change(device.drained_s, facts(task).sums * at(fold(task).num_slots), -1);
      double& drained_s = drained_[at(task.stage)];
      drained_s = std::max(drained_s, device.drained_s);
    }
  }

  /// The host reduces layers, the last one first, and commits.
  double commit_s() {
    HostWorkers workers = begin_.workers;
    std::vector<double> reduced_s(table_.model().params.size());  // of those with several uses
    double ready_s = 0;
    for (const StaticDevice& device : tracks_) ready_s = std::max(ready_s, device.drained_s);
    for (std::size_t s = step_.stages.size(); s-- > 0;) {
      if (step_.stages[s]->packed_sums == 0) continue;
      std::size_t partials = 0;
      const std::vector<Cell>& cells = step_.cells(static_cast<int>(s));
      for (std::size_t c = 0; c < cells.size(); ++c) {
        partials += step_.folds[at(step_.first_cells[s]) + c]->roots.size();
      }
      const auto& reduces = table_.reduces(cells.size(), partials);
      const LayerRange layers = step_.strategy.stages[s].layers;
      for (int l = layers.end - 1; l >= layers.begin; --l) {
        if (table_.whole().layout.layers[at(l)].sum.bytes == 0) continue;
        double after_s = drained_[s];
        const std::vector<int>& tied = table_.tied_params()[at(l)];
        for (int p : tied) after_s = std::max(after_s, reduced_s[at(p)]);
        const HostOpSpec& op = reduces[at(l)];
        const double end_s =
            workers.run(after_s + costs_.dispatch_latency_s, op.cost_s, op.grains).end_s;
        for (int p : tied) reduced_s[at(p)] = end_s;
        ready_s = std::max(ready_s, end_s);
      }
    }
    return workers.run(ready_s + costs_.dispatch_latency_s, 0, 1).end_s;
  }

  /// All copies of a boundary leave with its last read.
  void note_boundaries() {
    for (std::size_t b = 0; b < last_reads_.size(); ++b) {
      if (last_reads_[b] == 0) continue;
      for (std::size_t t = 0; t < tracks_.size(); ++t) {
        if (there_[b * tracks_.size() + t] < 0) continue;
        tracks_[t].change(last_reads_[b], step_.bytes[b / at(vns_)], -1);
      }
    }
  }

  static std::int64_t room(const StaticDevice& device, const EngineConfig& engine) {
    const Bytes planned = engine.split.planned(engine.device_budgets[device.number]);
    return static_cast<std::int64_t>(planned) - static_cast<std::int64_t>(device.workspace);
  }

  /// The bytes for which there is no room at the worst time.
  static double overflow(StaticDevice& device, std::int64_t room) {
    // What leaves at the same time goes first.
    std::ranges::sort(device.memory, [](const auto& a, const auto& b) {
      return std::pair(a.time_s, a.bytes) < std::pair(b.time_s, b.bytes);
    });
    std::int64_t used = 0, peak = 0;
    for (const auto& change : device.memory) peak = std::max(peak, used += change.bytes);
    return static_cast<double>(std::max<std::int64_t>(peak - room, 0));
  }

  const StepOutline& step_;
  StageTable& table_;
  const HostBegin& begin_;
  const std::vector<StaticDevice>& before_;
  std::vector<StaticDevice> tracks_;
  const VirtualCosts& costs_;
  CopyQueues copies_;
  const int vns_;
  const std::size_t num_weights_;
  double contention_ = 1;
  std::vector<double> weights_there_;  // by track, weights buffer: since when
  std::vector<double> sums_there_;     // by cell
  std::vector<double> there_;          // by exchanged buffer, track
  std::vector<int> makers_;            // by exchanged buffer: the track; -1: the host
  std::vector<double> last_reads_;     // by exchanged buffer
  std::vector<double> ends_;           // by task
  std::vector<double> tails_;          // by task: see find_tails()
  std::vector<double> drained_;        // by stage
};

/// Devices that compute at the same time slow each other down; a first pass tells how many do.
StepEstimate passed(const StepOutline& outline, StageTable& table, const HostBegin& begin,
                    const std::vector<StaticDevice>& tracks, const EngineConfig& engine,
                    const VirtualCosts& costs, double most_s) {
  const bool has_contention = costs.contention.threads > 0;
  // With links between devices slower ops may make the step shorter, so the first pass bounds
  // nothing.
  const bool is_bound = !has_contention || costs.links.paths().empty();
  const double longest_s = is_bound ? most_s : std::numeric_limits<double>::infinity();
  StaticStep step(outline, table, begin, tracks, costs);
  StaticStep::Result result = step.run({.most_s = longest_s, .notes_memory = !has_contention});
  if (has_contention && result.is_whole && result.step_s <= longest_s) {
    const double busy = step.busy_threads(result.step_s, engine.device_budgets.size());
    const double contention = costs.contention.at(busy);
    const bool has_room = step.has_ample_room(engine);
    if (contention > 1 || !has_room) {
      result = step.run({.contention = contention, .most_s = most_s, .notes_memory = !has_room});
    }
  }
  if (!result.is_whole || result.step_s > most_s) return {result.step_s, false};
  const double overflow_s = step.has_ample_room(engine) ? 0 : step.overflow_s(engine);
  return {result.step_s + overflow_s, overflow_s == 0};
}

}  // namespace

StepEstimator::StepEstimator(const ModelSpec& model, const Profile& profile, const JobShape& shape,
                             const EngineConfig& engine, const VirtualCosts& costs)
    : table_(model, profile, shape),
      engine_(engine),
      costs_(costs),
      begin_(host_begin(table_.whole(), costs)) {}

std::optional<StepEstimate> StepEstimator::estimate(Strategy strategy, double most_s) {
  const int slots = sum_slots(table_.shape(), strategy);
  const auto devices = devices_for(strategy, slots);
  if (!devices) return std::nullopt;
  std::vector<StaticDevice> tracks;
  for (std::size_t device : *devices) {
    tracks.push_back({.number = device,
                      .slowdown = costs_.slowdown_of(device),
                      .op_start_s = costs_.op_start_of(device)});
  }
  const StepOutline outline(table_, strategy, slots);
  return passed(outline, table_, begin_, tracks, engine_, costs_, most_s);
}

/// Divides its stages to fit the devices that can run it. The first of them, by track.
std::optional<std::vector<std::size_t>> StepEstimator::devices_for(Strategy& strategy, int slots) {
  const Bytes smallest = table_.smallest_budget(slots);
  std::vector<Bytes> usable;
  for (Bytes budget : engine_.device_budgets) {
    if (budget >= smallest) usable.push_back(budget);
  }
  if (usable.empty() || usable.size() < at(strategy.tracks)) return std::nullopt;
  const Bytes budget = *std::ranges::min_element(usable);
  Bytes needed = 0;
  std::vector<Stage> stages;
  stages.reserve(strategy.stages.size());
  for (Stage& stage : strategy.stages) {
    const std::vector<LayerRange>& parts = table_.divided(stage.layers, slots, budget);
    for (LayerRange layers : parts) {
      needed = std::max(needed, table_.facts(layers, slots).needed_budget);
      if (layers.end < stage.layers.end) stages.push_back({layers, stage.cells, stage.set});
    }
    stages.push_back({parts.back(), std::move(stage.cells), stage.set});
  }
  strategy.stages = std::move(stages);
  std::vector<std::size_t> devices;
  for (std::size_t d = 0; d < engine_.device_budgets.size(); ++d) {
    const bool is_next = devices.size() < at(strategy.tracks);
    if (is_next && engine_.device_budgets[d] >= needed) devices.push_back(d);
  }
  return devices.size() == at(strategy.tracks) ? std::optional(devices) : std::nullopt;
}

}  // namespace spillway
