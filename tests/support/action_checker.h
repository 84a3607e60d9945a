#pragma once

#include <map>
#include <memory>
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
class ActionChecker {
 public:
  void submit(JobId job, std::shared_ptr<const JobPlan> plan) { jobs_[job].plan = std::move(plan); }

  void on_action(const Action& action) {
    std::visit([this](const auto& a) { observe(a); }, action);
  }

  void on_completion(const Done& done) {
    const auto found = flights_.find(done.id);
    if (found == flights_.end()) return complain("an action ended twice");
    if (!done.error.empty()) failed_.insert(found->second.job);
    if (!failed_.contains(found->second.job)) apply(found->second);
    flights_.erase(found);
  }

  /// What was wrong so far.
  const std::vector<std::string>& problems() const { return problems_; }
  const std::set<JobId>& ended() const { return ended_; }
  /// Loads of weights by (job, step, buffer), over all devices.
  const std::map<std::tuple<JobId, std::int64_t, int>, int>& weight_loads() const { return loads_; }
  std::int64_t steps(JobId job) const { return jobs_.at(job).step; }
  std::size_t ops_seen() const { return ops_seen_; }

 private:
  struct Access {
    int place;  // device number, or -1: the home of `job`
    JobId job;
    Bytes begin, end;
    bool writes;
  };
  struct Content {
    JobId job;
    int buffer;
    std::int64_t step;
    bool operator==(const Content&) const = default;
  };
  struct Flight {
    ActionId id;
    JobId job;
    int queue;  // ops of a device and copies of one direction are ordered among themselves
    std::set<ActionId> before;
    std::vector<Access> accesses;
    std::vector<std::pair<std::pair<int, Bytes>, Content>> makes;
    std::vector<std::pair<std::pair<int, Bytes>, Content>> expects;
  };
  struct Job {
    std::shared_ptr<const JobPlan> plan;
    std::int64_t step = 0;
    std::set<int> started_ops, started_host_ops;
  };

  void observe(const StartOp& start) {
    Job& job = jobs_.at(start.job);
    ++ops_seen_;
    require(job.step == start.step, "an op of another step");
    const Program& program = *job.plan->programs[start.flavor];
    require(job.started_ops.insert(start.op).second, "an op ran twice");
    const OpSpec& op = program.ops[static_cast<std::size_t>(start.op)];
    const UnitSpec& unit = program.units[static_cast<std::size_t>(start.unit)];
    const DeviceId made_for = job.plan->device_of(unit.lane);
    require(!made_for.valid() || made_for == start.device, "a lane on another device");
    if (start.op > unit.first_op) {
      require(job.started_ops.contains(start.op - 1), "ops out of order");
    }
    const int device = static_cast<int>(start.device.value);
    Flight flight{start.id, start.job, device * 3, {start.after.begin(), start.after.end()},
                  {},       {},        {}};
    std::size_t next = 0;
    const auto touch = [&](const std::vector<int>& buffers, bool reads, bool writes) {
      for (int b : buffers) {
        const Bytes offset = start.offsets.at(next++);
        const Content content{start.job, b, start.step};
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
    const Content content{copy.job, copy.buffer, jobs_.at(copy.job).step};
    Flight flight{copy.id, copy.job, device * 3 + (down ? 1 : 2), {}, {}, {}, {}};
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
    require(job.started_host_ops.insert(start.op).second, "a host op ran twice");
    const HostOpSpec& op = job.plan->programs[start.flavor]->host_ops[index(start.op)];
    const Layout& layout = job.plan->layout;
    Flight flight{start.id, start.job, -1 - static_cast<int>(start.id), {}, {}, {}, {}};
    const auto write = [&](int b) {
      const BufferSpec& spec = layout.buffers[index(b)];
      flight.accesses.push_back(
          {home(start.job), start.job, spec.home, spec.home + spec.bytes, true});
      flight.makes.push_back({{home(start.job), spec.home}, {start.job, b, start.step}});
    };
    if (op.kind == HostOpKind::update) write(op.index);
    if (op.kind == HostOpKind::load) {
      for (int b : op.index == 1 ? layout.eval_batch : layout.batch) write(b);
    }
    if (op.kind == HostOpKind::reduce) {
      for (std::size_t b = 0; b < layout.buffers.size(); ++b) {
        const BufferSpec& spec = layout.buffers[b];
        const Bytes begin = layout.layers[index(op.index)].sum_home;
        if (spec.kind != BufferKind::sum || spec.home == kNoHome ||
            (spec.home - begin) % layout.sum_plane != 0 || spec.home < begin) {
          continue;
        }
        flight.expects.push_back(
            {{home(start.job), spec.home}, {start.job, static_cast<int>(b), start.step}});
      }
    }
    launch(std::move(flight));
  }

  void observe(const AdmitJob& admission) {
    const Layout& layout = jobs_.at(admission.job).plan->layout;
    Flight flight{admission.id, admission.job, -1 - static_cast<int>(admission.id), {}, {}, {}, {}};
    for (int b : layout.weights) {
      const Bytes at = layout.buffers[index(b)].home;
      flight.makes.push_back({{home(admission.job), at}, {admission.job, b, 0}});
    }
    launch(std::move(flight));
  }

  void observe(const StepCommitted& committed) {
    Job& job = jobs_.at(committed.job);
    require(committed.step == ++job.step, "a step is committed out of order");
    job.started_ops.clear();
    job.started_host_ops.clear();
  }

  void observe(const JobEnded& ended) {
    require(ended_.insert(ended.job).second, "a job ended twice");
  }

  void complain(const std::string& problem) { problems_.push_back(problem); }
  void require(bool holds, const std::string& problem) {
    if (!holds) complain(problem);
  }
  static std::string text(const Content& content) {
    return "buffer " + std::to_string(content.buffer) + " of job " +
           std::to_string(content.job.value) + " at step " + std::to_string(content.step);
  }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static int home(JobId job) { return -1 - static_cast<int>(job.value); }
  Bytes bytes(JobId job, int buffer) const {
    return jobs_.at(job).plan->layout.buffers[index(buffer)].bytes;
  }

  void launch(Flight flight) {
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
      if (found == contents_.end()) return complain("reads bytes that nothing wrote");
      require(found->second == content, "action " + std::to_string(flight.id) + " expects " +
                                            text(content) + ", finds " + text(found->second));
    }
    for (const auto& [where, content] : flight.makes) contents_[where] = content;
  }

  std::map<JobId, Job> jobs_;
  std::map<ActionId, Flight> flights_;
  std::map<std::pair<int, Bytes>, Content> contents_;
  std::map<std::tuple<JobId, std::int64_t, int>, int> loads_;
  std::set<JobId> ended_, failed_;
  std::vector<std::string> problems_;
  std::size_t ops_seen_ = 0;
};

}  // namespace spillway::testing
