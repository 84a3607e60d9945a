#include "scheduler/simulation/static_step.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "spillway/ids.h"

namespace spillway {
namespace {

constexpr double kAbsent = -1;

/// A device while its track passes.
struct StaticDevice {
  double compute_s = 0, to_device_s = 0, to_host_s = 0;  ///< when its queues are free
  double busy_s = 0;
  /// The last two ops: when they end, and their units.
  std::array<double, 2> ends{};
  std::array<int, 2> units{-1, -1};
  double issued_s = 0;    ///< when its last op was handed over
  double reserved_s = 0;  ///< when its last unit got its memory
  bool is_long = false;   ///< that unit has more ops than are handed over at once
  Bytes workspace = 0;
  std::vector<double> there;  ///< by buffer: since when the device has a copy, or kAbsent
  struct Change {
    double time_s = 0;
    std::int64_t bytes = 0;
  };
  std::vector<Change> memory;
};

class StaticStep {
 public:
  StaticStep(const JobPlan& plan, const EngineConfig& engine, const VirtualCosts& costs)
      : plan_(plan),
        program_(*plan.programs[kStepAfterStep.index()]),
        engine_(engine),
        costs_(costs) {}

  /// `contention`: the slowdown of compute.
  double run(double contention) {
    contention_ = contention;
    devices_.assign(engine_.device_budgets.size(), StaticDevice{});
    for (StaticDevice& device : devices_) {
      device.there.assign(plan_.layout.buffers.size(), kAbsent);
    }
    unit_ends_.assign(program_.units.size(), 0);
    drained_s_.assign(program_.units.size(), 0);
    last_reads_.assign(plan_.layout.buffers.size(), 0);
    host_ends_.assign(program_.host_ops.size(), 0);
    workers_ = HostWorkers(costs_.host_workers);
    const auto run_host_ops = [&](bool before_units) {
      for (std::size_t h = 0; h < program_.host_ops.size(); ++h) {
        const HostOpSpec& op = program_.host_ops[h];
        const bool is_before = op.kind == HostOpKind::load || op.kind == HostOpKind::update;
        if (is_before == before_units) run_host_op(h, op);
      }
    };
    run_host_ops(/*before_units=*/true);
    for (int u = 0; u < static_cast<int>(program_.units.size()); ++u) run_unit(u);
    run_host_ops(/*before_units=*/false);
    return *std::ranges::max_element(host_ends_);
  }

  /// After run(): the threads that are busy on average while a device computes.
  double busy_threads(double step_s) const {
    double busy_s = 0;
    for (std::size_t d = 0; d < devices_.size(); ++d) busy_s += devices_[d].busy_s / slowdown(d);
    const auto number = static_cast<double>(devices_.size());
    return 1 + busy_s / step_s * (number - 1) / number;
  }

  /// After run().
  bool fits() {
    note_boundaries();
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const auto budget =
          static_cast<std::int64_t>(engine_.split.planned(engine_.device_budgets[d]));
      std::int64_t used = static_cast<std::int64_t>(devices_[d].workspace);
      auto& memory = devices_[d].memory;
      // What leaves at the same time goes first.
      std::ranges::sort(memory, [](const auto& a, const auto& b) {
        return std::pair(a.time_s, a.bytes) < std::pair(b.time_s, b.bytes);
      });
      for (const auto& change : memory) {
        used += change.bytes;
        if (used > budget) return false;
      }
    }
    return true;
  }

 private:
  std::size_t device_of(const UnitSpec& unit) const {
    const DeviceId device = plan_.device_of(unit.track);
    return device.valid() ? device.index() : at(unit.track);
  }
  double slowdown(std::size_t device) const {
    return device < costs_.slowdown.size() ? costs_.slowdown[device] : 1;
  }
  double copy_s(std::size_t device, Bytes bytes) const {
    const auto& links = costs_.link_bytes_per_s;
    const double link = device < links.size() ? links[device] : 0;
    const double rate =
        link > 0 ? std::min(link, costs_.copy_bytes_per_s) : costs_.copy_bytes_per_s;
    return static_cast<double>(bytes) / rate;
  }
  Bytes bytes_of(int buffer) const { return plan_.layout.buffers[at(buffer)].bytes; }

  void run_host_op(std::size_t number, const HostOpSpec& op) {
    double ready_s = 0;
    for (int u : op.unit_deps) ready_s = std::max(ready_s, drained_s_[at(u)]);
    for (int h : op.host_deps) ready_s = std::max(ready_s, host_ends_[at(h)]);
    host_ends_[number] =
        workers_.run(ready_s + costs_.dispatch_latency_s, op.cost_s, op.grains).end_s;
  }

  /// Queues a copy at `now_s` and returns its end.
  double copy(std::size_t device, double& queue_s, double now_s, Bytes bytes) {
    const double latency_s = queue_s < now_s ? costs_.copy_latency_s : 0;
    queue_s =
        std::max(now_s + costs_.dispatch_latency_s, queue_s) + latency_s + copy_s(device, bytes);
    return queue_s;
  }

  void load(std::size_t number, int buffer, double now_s) {
    StaticDevice& device = devices_[number];
    if (device.there[at(buffer)] >= 0) return;
    device.there[at(buffer)] = copy(number, device.to_device_s, now_s, bytes_of(buffer));
    note(device, now_s, buffer);
  }

  static void change(StaticDevice& device, double time_s, Bytes bytes, int sign) {
    device.memory.push_back({time_s, sign * static_cast<std::int64_t>(bytes)});
  }
  /// The buffer takes room from now on.
  void note(StaticDevice& device, double now_s, int buffer) {
    change(device, now_s, bytes_of(buffer), 1);
  }

  void run_unit(int number) {
    const UnitSpec& unit = program_.units[at(number)];
    const std::size_t where = device_of(unit);
    StaticDevice& device = devices_[where];
    double ready_s = 0;
    for (int u : unit.unit_deps) ready_s = std::max(ready_s, unit_ends_[at(u)]);
    for (int h : unit.host_deps) ready_s = std::max(ready_s, host_ends_[at(h)]);
    double reserved_s = std::max(ready_s, device.issued_s);
    // At most two units have memory.
    if (device.units[0] != device.units[1]) reserved_s = std::max(reserved_s, device.ends[0]);
    const double load_s = device.is_long ? std::max(ready_s, device.reserved_s) : reserved_s;
    double weights_s = 0;
    for (int b : unit.weights) {
      load(where, b, load_s);
      weights_s = std::max(weights_s, device.there[at(b)]);
    }
    for (int b : unit.sums) {
      if (device.there[at(b)] >= 0) continue;
      device.there[at(b)] = reserved_s;
      note(device, reserved_s, b);
    }
    device.reserved_s = reserved_s;
    device.is_long = unit.num_ops > 2;
    device.workspace = std::max(device.workspace, unit.workspace);
    std::array<double, kOpsAhead> issued{};
    issued.fill(reserved_s);
    for (int i = 0; i < unit.num_ops; ++i) {
      double& ahead_s = issued[at(i % kOpsAhead)];
      run_op(where, number, program_.ops[at(unit.first_op + i)], weights_s, ahead_s);
      ahead_s = device.issued_s;
    }
    unit_ends_[at(number)] = device.ends[1];
    end_unit(where, number, unit);
  }

  /// `ahead_s`: when its inputs may be loaded.
  void run_op(std::size_t where, int unit, const OpSpec& op, double weights_s, double ahead_s) {
    StaticDevice& device = devices_[where];
    const double issued_s = std::max(device.reserved_s, device.ends[0]);
    double data_s = weights_s;
    for (int b : op.inputs) {
      load(where, b, ahead_s);
      data_s = std::max(data_s, device.there[at(b)]);
    }
    const double start_s =
        std::max({issued_s + costs_.dispatch_latency_s, device.compute_s, data_s});
    const bool uses_graph = op.graph >= 0;
    const double seconds = op.seconds(uses_graph) * slowdown(where) * contention_;
    const double end_s = device.compute_s = start_s + seconds;
    device.busy_s += seconds;
    for (int b : op.inputs) last_reads_[at(b)] = std::max(last_reads_[at(b)], end_s);
    for (int b : op.outputs) {
      device.there[at(b)] = end_s;
      note(device, issued_s, b);
    }
    if (uses_graph && op.kind == OpKind::forward) note(device, issued_s, op.graph);
    if (uses_graph && op.kind == OpKind::backward) {
      change(device, end_s, bytes_of(op.graph), -1);
    }
    device.ends = {device.ends[1], end_s};
    device.units = {device.units[1], unit};
    device.issued_s = issued_s;
  }

  void end_unit(std::size_t where, int number, const UnitSpec& unit) {
    StaticDevice& device = devices_[where];
    const double end_s = unit_ends_[at(number)];
    drained_s_[at(number)] = end_s;
    for (int b : unit.leaves) {
      device.there[at(b)] = kAbsent;
      change(device, end_s, bytes_of(b), -1);
    }
    if (unit.drains.empty()) return;
    for (int b : unit.drains) {
      const Bytes bytes = plan_.layout.buffers[at(b)].home_bytes;
      drained_s_[at(number)] = copy(where, device.to_host_s, end_s, bytes);
    }
    for (int b : unit.sums) change(device, drained_s_[at(number)], bytes_of(b), -1);
  }

  /// All copies of a boundary leave with its last read.
  void note_boundaries() {
    for (StaticDevice& device : devices_) {
      for (std::size_t b = 0; b < last_reads_.size(); ++b) {
        if (last_reads_[b] == 0 || device.there[b] < 0) continue;
        change(device, last_reads_[b], plan_.layout.buffers[b].bytes, -1);
      }
    }
  }

  const JobPlan& plan_;
  const Program& program_;
  const EngineConfig& engine_;
  const VirtualCosts& costs_;
  double contention_ = 1;
  std::vector<StaticDevice> devices_;
  std::vector<double> unit_ends_, drained_s_, host_ends_;
  HostWorkers workers_{0};
  std::vector<double> last_reads_;  // by buffer
};

}  // namespace

std::optional<double> static_step_s(const JobPlan& plan, const EngineConfig& engine,
                                    const VirtualCosts& costs) {
  StaticStep step(plan, engine, costs);
  double step_s = step.run(1);
  if (costs.contention.threads > 0)
    step_s = step.run(costs.contention.at(step.busy_threads(step_s)));
  return step.fits() ? std::optional(step_s) : std::nullopt;
}

}  // namespace spillway
