#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "scheduler/action.h"
#include "scheduler/program.h"

namespace spillway::testing {

/// Watches the actions of an engine and the order of their ends, and knows nothing of its tables.
/// Checks: every op once and after what it reads was made; operations in flight at the same time
/// without an order between them never touch the same bytes unless both only read; a transfer or
/// op never reads bytes that hold something else than it expects, unless its job has failed.
/// Where devices and plans change: a committed step has every op of its last attempt exactly once,
/// and every update, load and evaluation once over all attempts; nothing of a dropped attempt is in
/// flight beside the next or is read by it; what reached only a lost device, or was under way from
/// there, is never read; nothing starts on a device that has left; another plan finds weights,
/// moments and gradient sums in the same homes.
class ActionChecker {
 public:
  void submit(JobId job, std::shared_ptr<const JobPlan> plan) { jobs_[job].plan = std::move(plan); }

  void on_action(const Action& action) {
    std::visit([this](const auto& a) { observe(a); }, action);
  }

  void on_completion(const Done& done) {
    const auto found = flights_.find(done.id);
    if (found == flights_.end()) return complain("an action ended twice");
    const Flight& flight = found->second;
    if (!done.error.empty()) failed_.insert(flight.job);
    require(done.lost == lost_.contains(flight.device), "lost, or not, against the device");
    if (done.lost) {
      for (const auto& [where, content] : flight.makes) contents_.erase(where);
    } else if (!failed_.contains(flight.job)) {
      apply(flight);
    }
    flights_.erase(found);
  }

  /// What was wrong so far.
  const std::vector<std::string>& problems() const { return problems_; }
  const std::set<JobId>& ended() const { return ended_; }
  /// Loads of weights by (job, step, buffer), over all devices.
  const std::map<std::tuple<JobId, std::int64_t, int>, int>& weight_loads() const { return loads_; }
  std::int64_t steps(JobId job) const { return jobs_.at(job).step; }
  int attempts(JobId job) const { return jobs_.at(job).attempt; }
  int plan_changes() const { return plan_changes_; }
  std::size_t ops_seen() const { return ops_seen_; }
  /// Ops of lanes on another device than they are made for.
  std::size_t strays() const { return strays_; }

 private:
  struct Access {
    int place;  // device number, or -1: the home of `job`
    JobId job;
    Bytes begin, end;
    bool writes;
  };
  struct Content {
    JobId job;
    int buffer;  // or -1 - layer: its sum over all lanes
    std::int64_t step;
    int attempt = 0;  // 0: what outlives attempts
    bool operator==(const Content&) const = default;
  };
  struct Flight {
    ActionId id;
    JobId job;
    DeviceId device;  // not valid: on the host
    int queue;        // ops of a device and copies of one direction are ordered among themselves
    std::set<ActionId> before = {};
    std::vector<Access> accesses = {};
    std::vector<std::pair<std::pair<int, Bytes>, Content>> makes = {};
    std::vector<std::pair<std::pair<int, Bytes>, Content>> expects = {};
    std::optional<int> op = {};
    std::optional<std::pair<HostOpKind, int>> host_op = {};
  };
  struct Job {
    std::shared_ptr<const JobPlan> plan;
    std::int64_t step = 0;
    int attempt = 0;
    std::set<int> started_ops = {}, ended_ops = {};  // of the attempt
    std::set<std::pair<HostOpKind, int>> started_host_ops = {}, ended_host_ops = {};  // kind, index
    const Program& program() const { return *plan->programs[plan->flavor(step).index()]; }
  };

  void observe(const StartOp& start) {
    Job& job = jobs_.at(start.job);
    ++ops_seen_;
    require(job.step == start.step, "an op of another step");
    require(job.attempt == start.attempt, "an op of another attempt");
    const Program& program = *job.plan->programs[start.flavor];
    require(job.started_ops.insert(start.op).second, "an op ran twice");
    const OpSpec& op = program.ops[static_cast<std::size_t>(start.op)];
    const UnitSpec& unit = program.units[static_cast<std::size_t>(start.unit)];
    const DeviceId made_for = job.plan->device_of(unit.lane);
    if (made_for.valid() && made_for != start.device) ++strays_;
    if (start.op > unit.first_op) {
      require(job.started_ops.contains(start.op - 1), "ops out of order");
    }
    const int device = static_cast<int>(start.device.value);
    Flight flight{start.id, start.job, start.device, device * 3};
    flight.before = {start.after.begin(), start.after.end()};
    flight.op = start.op;
    std::size_t next = 0;
    const auto touch = [&](const std::vector<int>& buffers, bool reads, bool writes) {
      for (int b : buffers) {
        const Bytes offset = start.offsets.at(next++);
        const Content content = content_of(start.job, b);
        flight.accesses.push_back(
            {device, start.job, offset, offset + bytes(start.job, b), writes});
        if (reads) flight.expects.push_back({{device, offset}, content});
        if (writes) flight.makes.push_back({{device, offset}, content});
      }
    };
    touch(unit.weights, true, false);
    touch(unit.sums, start.op > unit.first_op, true);
    touch(op.inputs, true, false);
    touch(op.outputs, false, true);
    require(next == start.offsets.size(), "an op with ranges that nothing needs");
    launch(std::move(flight));
  }

  void observe(const StartCopy& copy) {
    const int device = static_cast<int>(copy.device.value);
    const bool down = copy.direction == CopyDirection::to_host;
    const std::pair<int, Bytes> on_device{device, copy.device_offset},
        at_home{home(copy.job), copy.home};
    require(jobs_.at(copy.job).attempt == copy.attempt, "a copy of another attempt");
    const Content content = content_of(copy.job, copy.buffer);
    Flight flight{copy.id, copy.job, copy.device, device * 3 + (down ? 1 : 2)};
    flight.accesses.push_back(
        {device, copy.job, copy.device_offset, copy.device_offset + copy.bytes, !down});
    flight.accesses.push_back({home(copy.job), copy.job, copy.home, copy.home + copy.bytes, down});
    flight.expects.push_back({down ? on_device : at_home, content});
    flight.makes.push_back({down ? at_home : on_device, content});
    const bool weights =
        jobs_.at(copy.job).plan->layout.buffers.at(index(copy.buffer)).kind == BufferKind::weights;
    if (!down && weights) ++loads_[{copy.job, jobs_.at(copy.job).step, copy.buffer}];
    launch(std::move(flight));
  }

  void observe(const StartHostOp& start) {
    Job& job = jobs_.at(start.job);
    const HostOpSpec& op = job.plan->programs[start.flavor]->host_ops[index(start.op)];
    require(job.attempt == start.attempt, "a host op of another attempt");
    require(job.started_host_ops.insert({op.kind, op.index}).second, "a host op ran twice");
    const Layout& layout = job.plan->layout;
    Flight flight{start.id, start.job, DeviceId(), -1 - static_cast<int>(start.id)};
    flight.host_op = {op.kind, op.index};
    if (op.kind == HostOpKind::update) {
      for (int l = 0; l < static_cast<int>(layout.layers.size()); ++l) {
        const Layout::LayerPlace& layer = layout.layers[index(l)];
        if (layer.sum_bytes == 0 || !contains(layer.weights_buffers, op.index)) continue;
        read(flight, layer.sum_home, layer.sum_bytes, {start.job, -1 - l, start.step - 1});
      }
      write(flight, op.index);
    }
    if (op.kind == HostOpKind::load) {
      for (int b : op.index == 1 ? layout.eval_batch : layout.batch) write(flight, b);
    }
    if (op.kind == HostOpKind::reduce) reduce(flight, op.index);
    launch(std::move(flight));
  }

  void write(Flight& flight, int b) const {
    const BufferSpec& spec = jobs_.at(flight.job).plan->layout.buffers[index(b)];
    const int place = home(flight.job);
    flight.accesses.push_back({place, flight.job, spec.home, spec.home + spec.bytes, true});
    flight.makes.push_back({{place, spec.home}, content_of(flight.job, b)});
  }

  void read(Flight& flight, Bytes begin, Bytes size, Content content) const {
    flight.accesses.push_back({home(flight.job), flight.job, begin, begin + size, false});
    flight.expects.push_back({{home(flight.job), begin}, content});
  }

  /// Adds what lanes have sent home of a layer into the first of it.
  void reduce(Flight& flight, int layer) const {
    const Job& job = jobs_.at(flight.job);
    const Layout& layout = job.plan->layout;
    const Layout::LayerPlace& place = layout.layers[index(layer)];
    for (int b = 0; b < static_cast<int>(layout.buffers.size()); ++b) {
      const BufferSpec& spec = layout.buffers[index(b)];
      if (spec.kind != BufferKind::sum || spec.home == kNoHome || spec.home < place.sum_home ||
          (spec.home - place.sum_home) % layout.sum_plane != 0) {
        continue;
      }
      read(flight, spec.home, spec.bytes, content_of(flight.job, b));
    }
    const std::pair first{home(flight.job), place.sum_home};
    flight.accesses.push_back(
        {first.first, flight.job, first.second, first.second + place.sum_bytes, true});
    flight.makes.push_back({first, {flight.job, -1 - layer, job.step}});
  }

  void observe(const AdmitJob& admission) {
    const Layout& layout = jobs_.at(admission.job).plan->layout;
    require(layout.home_bytes <= admission.home_bytes, "a home that is too small");
    Flight flight{admission.id, admission.job, DeviceId(), -1 - static_cast<int>(admission.id)};
    for (int b : layout.weights) {
      const Bytes at = layout.buffers[index(b)].home;
      flight.makes.push_back({{home(admission.job), at}, {admission.job, b, 0}});
    }
    launch(std::move(flight));
  }

  void observe(const StepCommitted& committed) {
    Job& job = jobs_.at(committed.job);
    check_complete(job);
    require(committed.step == ++job.step, "a step is committed out of order");
    job.ended_host_ops.clear();
    job.started_host_ops.clear();
    begin_attempt(job);
  }

  void observe(const StepRedone& redone) {
    Job& job = jobs_.at(redone.job);
    require(redone.step == job.step, "a step that is not open is redone");
    require(redone.attempt == ++job.attempt, "attempts out of order");
    require_quiet(redone.job);
    const bool evaluated = is_evaluated(job);
    std::erase_if(job.ended_host_ops, [&](const auto& op) {
      return op.first != HostOpKind::update && op.first != HostOpKind::load &&
             !(op.first == HostOpKind::finish_evaluation && evaluated);
    });
    job.started_host_ops = job.ended_host_ops;
    begin_attempt(job);
  }

  void observe(const PlanChanged& changed) {
    Job& job = jobs_.at(changed.job);
    ++plan_changes_;
    require_quiet(changed.job);
    require(same_state(job.plan->layout, changed.plan->layout), "a plan with other homes");
    const Layout& layout = job.plan->layout;
    std::erase_if(contents_, [&](const auto& item) {
      const auto& [where, content] = item;
      const bool is_state =
          where.first == home(changed.job) &&
          (content.buffer < 0 || layout.buffers[index(content.buffer)].kind == BufferKind::weights);
      return content.job == changed.job && !is_state;
    });
    job.plan = changed.plan;
    for (auto* ops : {&job.started_host_ops, &job.ended_host_ops}) {
      std::erase_if(*ops, [](const auto& op) { return op.first == HostOpKind::load; });
    }
    begin_attempt(job);
  }

  void observe(const DeviceLeft& left) {
    require(gone_.insert(left.device).second, "a device left twice");
    if (left.lost) lost_.insert(left.device);
    for (const auto& [id, flight] : flights_) {
      require(left.lost || flight.device != left.device, "a device left before an action there");
    }
    std::erase_if(contents_, [&](const auto& item) {
      return item.first.first == static_cast<int>(left.device.value);
    });
  }

  void observe(const JobEnded& ended) {
    require(ended_.insert(ended.job).second, "a job ended twice");
    require_quiet(ended.job);
    if (ended.end == JobEnd::done) check_complete(jobs_.at(ended.job));
  }

  static bool is_evaluated(const Job& job) {
    return job.ended_host_ops.contains({HostOpKind::finish_evaluation, 0});
  }

  /// Evaluation that is done is not done again, whatever the plan.
  static void begin_attempt(Job& job) {
    job.ended_ops.clear();
    const auto& ops = job.program().ops;
    for (std::size_t i = 0; is_evaluated(job) && i < ops.size(); ++i) {
      if (ops[i].kind == OpKind::evaluate) job.ended_ops.insert(static_cast<int>(i));
    }
    job.started_ops = job.ended_ops;
  }

  void check_complete(const Job& job) {
    require(job.ended_ops.size() == job.program().ops.size(), "a step without all of its ops");
    require(job.ended_host_ops.size() == job.program().host_ops.size(),
            "a step without all of its host ops");
  }

  void require_quiet(JobId job) {
    for (const auto& [id, flight] : flights_) {
      require(flight.job != job, "something of the job is in flight");
    }
  }

  static bool same_state(const Layout& a, const Layout& b) {
    const auto homes = [](const Layout& layout) {
      std::vector<Bytes> found{layout.weights_plane, layout.moments_plane, layout.sum_plane,
                               layout.moments_home, static_cast<Bytes>(layout.moments)};
      for (int buffer : layout.weights) found.push_back(layout.buffers[index(buffer)].home);
      for (const auto& param : layout.params) found.push_back(param.moment_offset);
      for (const auto& layer : layout.layers) found.push_back(layer.sum_home);
      return found;
    };
    return a.weights == b.weights && homes(a) == homes(b);
  }

  void complain(const std::string& problem) { problems_.push_back(problem); }
  void require(bool holds, const std::string& problem) {
    if (!holds) complain(problem);
  }
  static bool contains(const std::vector<int>& items, int item) {
    return std::find(items.begin(), items.end(), item) != items.end();
  }
  Content content_of(JobId id, int b) const {
    const Job& job = jobs_.at(id);
    const BufferKind kind = job.plan->layout.buffers[index(b)].kind;
    const bool outlives = kind == BufferKind::weights || kind == BufferKind::batch;
    return {id, b, job.step, outlives ? 0 : job.attempt};
  }
  static std::string text(const Content& content) {
    return "buffer " + std::to_string(content.buffer) + " of job " +
           std::to_string(content.job.value) + " at step " + std::to_string(content.step) +
           ", attempt " + std::to_string(content.attempt);
  }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static int home(JobId job) { return -1 - static_cast<int>(job.value); }
  Bytes bytes(JobId job, int buffer) const {
    return jobs_.at(job).plan->layout.buffers[index(buffer)].bytes;
  }

  void launch(Flight flight) {
    require(!gone_.contains(flight.device), "an action on a device that has left");
    for (const auto& [id, other] : flights_) {
      if (other.queue == flight.queue || flight.before.contains(id)) {
        flight.before.insert(other.before.begin(), other.before.end());
        flight.before.insert(id);
      }
    }
    for (const auto& [id, other] : flights_) {
      if (flight.before.contains(id)) continue;
      for (const Access& a : flight.accesses) {
        for (const Access& b : other.accesses) {
          require(a.place != b.place || a.begin >= b.end || b.begin >= a.end ||
                      (!a.writes && !b.writes),
                  "actions " + std::to_string(id) + " and " + std::to_string(flight.id) + " race");
        }
      }
    }
    flights_.emplace(flight.id, std::move(flight));
  }

  /// Contents count from the end of what makes them; queues end in order.
  void apply(const Flight& flight) {
    for (const auto& [where, content] : flight.expects) {
      const auto found = contents_.find(where);
      if (found == contents_.end()) {
        complain("action " + std::to_string(flight.id) + " expects " + text(content) +
                 ", which nothing wrote");
        continue;
      }
      require(found->second == content, "action " + std::to_string(flight.id) + " expects " +
                                            text(content) + ", finds " + text(found->second));
    }
    for (const auto& [where, content] : flight.makes) contents_[where] = content;
    Job& job = jobs_.at(flight.job);
    if (flight.op) job.ended_ops.insert(*flight.op);
    if (flight.host_op) job.ended_host_ops.insert(*flight.host_op);
  }

  std::map<JobId, Job> jobs_;
  std::map<ActionId, Flight> flights_;
  std::map<std::pair<int, Bytes>, Content> contents_;
  std::map<std::tuple<JobId, std::int64_t, int>, int> loads_;
  std::set<JobId> ended_, failed_;
  std::set<DeviceId> gone_, lost_;
  int plan_changes_ = 0;
  std::vector<std::string> problems_;
  std::size_t ops_seen_ = 0, strays_ = 0;
};

}  // namespace spillway::testing
