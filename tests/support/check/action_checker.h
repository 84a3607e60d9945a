#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "scheduler/engine/action.h"
#include "scheduler/plan/program.h"
#include "tests/support/check/step_history.h"

namespace spillway::testing {

/// Watches the actions of an engine and the order of their ends, without reading its tables.
/// Checks, in addition to StepHistory: operations in flight at the same time without an order
/// between them never touch the same bytes unless both only read; a transfer or op never reads
/// bytes with unexpected contents, unless its job has failed. Nothing starts on a device that has
/// left. Data that existed only on a lost device, was in flight from it, or belongs to a dropped
/// attempt is never read. Nothing of a job is in flight when its step is repeated or its plan
/// changes, and another plan finds weights, moments and gradient sums in the same homes. A backward
/// uses the graph of its own forward only, and what that graph needs has not moved since.
class ActionChecker {
 public:
  void submit(JobId job, std::shared_ptr<const JobPlan> plan) {
    history_.submit(job, std::move(plan));
  }

  /// Engine::go_on().
  void go_on(JobId job) { history_.go_on(job); }

  void on_action(const Action& action) {
    std::visit([this](const auto& a) { observe(a); }, action);
  }

  void on_completion(const Done& done) {
    const auto found = flights_.find(done.id);
    if (found == flights_.end()) return complain("an action ended twice");
    const Flight& flight = found->second;
    if (!done.error.empty() && !done.lost) {
      const bool is_op = std::holds_alternative<StartOp>(flight.action);
      (is_op ? failed_in_op_ : failed_).insert(flight.job);
    }
    require(done.lost == lost_.contains(flight.device) || (done.lost && exchanges(flight)),
            "lost, or not, against the device");
    const bool is_on_device = flight.device.valid();
    if (loads_shared(flight) && !done.lost) {
      apply(flight);  // whatever becomes of the job that asked
    } else if (done.lost || flight.is_void ||
               (is_on_device && failed_in_op_.contains(flight.job))) {
      for (const auto& [where, content] : flight.makes) contents_.erase(where);
    } else if (!failed_.contains(flight.job)) {
      apply(flight);
    }
    flights_.erase(found);
  }

  /// The problems so far.
  std::vector<std::string> problems() const {
    auto all = problems_;
    all.insert(all.end(), history_.problems().begin(), history_.problems().end());
    return all;
  }
  const std::set<JobId>& ended() const { return ended_; }
  /// Loads of weights by (job, step, buffer), over all devices.
  const std::map<std::tuple<JobId, std::int64_t, int>, int>& weight_loads() const { return loads_; }
  std::int64_t steps(JobId job) const { return history_.step(job); }
  int attempts(JobId job) const { return history_.attempt(job); }
  std::int64_t max_steps(JobId job) const { return history_.plan(job).max_steps; }
  std::size_t ops_seen() const { return ops_seen_; }
  /// Ops of tracks that ran on another device than the one planned for them.
  std::size_t strays() const { return strays_; }
  /// Backward ops that used a kept graph, and graphs that were dropped.
  std::size_t graphs_used() const { return graphs_used_; }
  std::size_t graphs_dropped() const { return graphs_dropped_; }

 private:
  struct Access {
    int place;  // device number, or home(job)
    Bytes begin, end;
    bool writes;
  };
  struct Content {
    JobId job;
    int buffer;  // or sum_of(layer): its sum over all lanes
    std::int64_t step;
    int attempt = 0;  // 0: outlives attempts
    int terms = -1;   // of a sum: ops that have added to it; -1: it is no sum
    bool operator==(const Content&) const = default;
  };
  static constexpr int kQueues = 1 + static_cast<int>(kCopyQueues);  // of a device
  using Place = std::pair<int, Bytes>;
  struct Graph {
    std::int64_t step = 0;
    int attempt = 0;
    std::map<int, Bytes> needed;  // offsets by buffer
    bool operator==(const Graph&) const = default;
  };
  struct Flight {
    ActionId id;
    JobId job;
    DeviceId device;  // not valid: on the host
    int queue;        // ops and copies of one queue of a device are ordered among themselves
    Action action;
    DeviceId peer = {};    // source of a copy
    bool is_void = false;  // it needs bytes of a device that has been lost
    std::set<ActionId> before = {};
    std::vector<Access> accesses = {};
    std::vector<std::pair<Place, Content>> makes = {}, expects = {};

    void read(Place place, Bytes bytes, const Content& content) {
      accesses.push_back({place.first, place.second, place.second + bytes, false});
      expects.emplace_back(place, content);
    }
    void write(Place place, Bytes bytes, const Content& content) {
      accesses.push_back({place.first, place.second, place.second + bytes, true});
      makes.emplace_back(place, content);
    }
  };

  /// Whether it is a copy of a block that jobs share.
  static bool loads_shared(const Flight& flight) {
    return std::holds_alternative<StartCopy>(flight.action) &&
           flight.makes.front().second.job == kAllJobs;
  }

  bool exchanges(const Flight& flight) const {
    const auto* start = std::get_if<StartHostOp>(&flight.action);
    if (!start) return false;
    const Program& program = *plan(flight.job).programs[start->step_kind];
    return program.host_ops[index(start->op)].kind == HostOpKind::exchange;
  }

  void observe(const StartOp& start) {
    ++ops_seen_;
    history_.on_start(start);
    const Program& program = *plan(start.job).programs[start.step_kind];
    const OpSpec& op = program.ops[index(start.op)];
    const UnitSpec& unit = program.units[index(start.unit)];
    require(!plan(start.job).avoids(start.device), "an op on a device that its plan avoids");
    const DeviceId made_for = plan(start.job).device_of(unit.track);
    if (made_for.valid() && made_for != start.device) ++strays_;
    const int device = static_cast<int>(start.device.value);
    Flight flight{start.id, start.job, start.device, device * kQueues, start};
    flight.before = {start.after.begin(), start.after.end()};
    std::size_t next = 0;
    std::map<int, Bytes> needed;  // offsets of what a graph needs
    for_each_buffer(unit, op, [&](int b, BufferUse use) {
      const bool is_boundary = buffer(start.job, b).kind != BufferKind::gradient;
      if (use == BufferUse::weights || (use == BufferUse::input && is_boundary)) {
        needed[b] = start.offsets.at(next);
      }
      const Place place{device, start.offsets.at(next++)};
      const Bytes bytes = buffer(start.job, b).bytes;
      Content content = content_of(start.job, b);
      if (use != BufferUse::output && content.terms != 0) flight.read(place, bytes, content);
      if (use == BufferUse::sum) {
        ++content.terms;
        sums_[{start.job, b}] = content;
      }
      const bool writes = use == BufferUse::sum || use == BufferUse::output;
      if (writes) flight.write(place, bytes, content);
    });
    require(next == start.offsets.size(), "an op with ranges that nothing needs");
    if (start.has_graph) observe_graph(start, op, std::move(needed));
    launch(std::move(flight));
  }

  void observe_graph(const StartOp& start, const OpSpec& op, std::map<int, Bytes> needed) {
    const Graph graph{history_.step(start.job), history_.attempt(start.job), std::move(needed)};
    const auto place = std::make_tuple(start.device, start.job, op.graph);
    if (op.kind == OpKind::forward) {
      require(graphs_.emplace(place, graph).second, "a graph is kept twice");
      return;
    }
    const auto kept = graphs_.find(place);
    if (kept == graphs_.end()) return complain("a backward uses a graph that is not there");
    require(kept->second == graph, "a backward uses another graph, or what it needs has moved");
    graphs_.erase(kept);
    ++graphs_used_;
  }

  void observe(const DropGraph& drop) {
    require(graphs_.erase({drop.device, drop.job, drop.buffer}) == 1, "no graph to drop");
    ++graphs_dropped_;
    const int queue = static_cast<int>(drop.device.value) * kQueues;
    launch({drop.id, drop.job, drop.device, queue, drop});
  }

  void observe(const StartCopy& copy) {
    history_.on_start(copy);
    const int device = static_cast<int>(copy.device.value);
    const bool down = copy.direction == CopyDirection::to_host;
    const Place on_device{device, copy.device_offset};
    const Place at_home = copy.peer.valid()
                              ? Place{static_cast<int>(copy.peer.value), copy.peer_offset}
                              : Place{home(copy.job), copy.home};
    const Content content = content_of(copy.job, copy.buffer);
    const int queue = device * kQueues + 1 + static_cast<int>(copy.queue());
    Flight flight{copy.id, copy.job, copy.device, queue, copy, copy.peer};
    if (copy.peer.valid()) {
      require(!gone_.contains(copy.peer), "a copy from a device that has left");
    }
    flight.read(down ? on_device : at_home, copy.bytes, content);
    flight.write(down ? at_home : on_device, copy.bytes, content);
    const bool weights = buffer(copy.job, copy.buffer).kind == BufferKind::weights;
    if (!down && weights && content.job != kAllJobs)
      ++loads_[{copy.job, content.step, copy.buffer}];
    launch(std::move(flight));
  }

  void observe(const StartHostOp& start) {
    history_.on_start(start);
    const HostOpSpec& op = plan(start.job).programs[start.step_kind]->host_ops[index(start.op)];
    const Layout& layout = plan(start.job).layout;
    Flight flight{start.id, start.job, DeviceId(), -1 - static_cast<int>(start.id), start};
    if (op.kind == HostOpKind::load) {
      for (int b : op.index == 1 ? layout.eval_batch : layout.batch) write_home(flight, b);
    }
    if (op.kind == HostOpKind::reduce) reduce(flight, op.index);
    const bool is_part = op.kind == HostOpKind::update_part;
    if (is_part || op.kind == HostOpKind::update) read_sums(flight, op.index);
    // Parts are of no use before all have come.
    if (op.kind == HostOpKind::update || op.kind == HostOpKind::take_weights) {
      write_home(flight, op.index);
    }
    launch(std::move(flight));
  }

  void write_home(Flight& flight, int b) const {
    const BufferSpec& spec = buffer(flight.job, b);
    flight.write({home(flight.job), spec.home}, spec.home_bytes, content_of(flight.job, b));
  }

  /// Adds the sums of a layer that lanes have sent home into the first one.
  void reduce(Flight& flight, int layer) const {
    const Layout& layout = plan(flight.job).layout;
    const Layout::LayerPlace& place = layout.layers[index(layer)];
    for (const auto& slots : layout.sum_buffers) {
      for (const std::vector<int>& by_layer : slots) {
        const int b = by_layer[index(layer)];
        if (b < 0 || buffer(flight.job, b).home == kNoHome) continue;
        const BufferSpec& spec = buffer(flight.job, b);
        flight.read({home(flight.job), spec.home}, spec.home_bytes, content_of(flight.job, b));
      }
    }
    if (place.total.bytes == 0) return;  // all of it is of other hosts
    flight.write({home(flight.job), place.total.home}, place.total.bytes,
                 {flight.job, sum_of(layer), history_.step(flight.job)});
  }

  /// Reads the sums of the previous step, of every layer that uses the block.
  void read_sums(Flight& flight, int block) const {
    const auto& layers = plan(flight.job).layout.layers;
    for (int l = 0; l < static_cast<int>(layers.size()); ++l) {
      const Layout::LayerPlace& layer = layers[index(l)];
      if (layer.total.bytes == 0 || std::ranges::count(layer.weights_buffers, block) == 0) continue;
      flight.read({home(flight.job), layer.total.home}, layer.total.bytes,
                  {flight.job, sum_of(l), history_.step(flight.job) - 1});
    }
  }

  void observe(const AdmitJob& admission) {
    const Layout& layout = plan(admission.job).layout;
    require(layout.home_bytes <= admission.home_bytes, "a home that is too small");
    Flight flight{admission.id, admission.job, DeviceId(), -1 - static_cast<int>(admission.id),
                  admission};
    for (int b : layout.weights) write_home(flight, b);
    launch(std::move(flight));
    admitted_.insert(admission.job);
  }

  void observe(const ReleaseJob& release) {
    require(admitted_.erase(release.job) == 1, "a home is released that is not there");
    require_quiet(release.job);
    launch({release.id, release.job, DeviceId(), -1 - static_cast<int>(release.id), release});
  }

  void observe(const StepCommitted& committed) { history_.observe(committed); }

  void observe(const JobRested& rested) {
    require_quiet(rested.job);
    history_.observe(rested);
  }

  void observe(const JobInterrupted& interrupted) {
    require_quiet(interrupted.job);
    history_.observe(interrupted);
  }

  void observe(const StepRedone& redone) {
    require_quiet(redone.job);
    failed_in_op_.erase(redone.job);  // it may have read lost data
    history_.observe(redone);
  }

  void observe(const PlanChanged& changed) {
    require_quiet(changed.job);
    const JobPlan& old = plan(changed.job);
    require(same_state(old.layout, changed.plan->layout), "a plan with other homes");
    std::erase_if(contents_, [&](const auto& item) {
      const auto& [place, content] = item;
      if (content.job != changed.job) return false;
      const bool is_state = content.buffer < 0 ||
                            old.layout.buffers[index(content.buffer)].kind == BufferKind::weights;
      return !is_state || place.first != home(changed.job);
    });
    history_.observe(changed);
  }

  void observe(const DeviceLeft& left) {
    require(gone_.insert(left.device).second, "a device left twice");
    if (left.lost) {
      lost_.insert(left.device);
      void_what_comes_from(left.device);
    }
    for (const auto& [id, flight] : flights_) {
      require(left.lost || (flight.device != left.device && flight.peer != left.device),
              "a device left before an action there");
    }
    std::erase_if(contents_, [&](const auto& item) {
      return item.first.first == static_cast<int>(left.device.value);
    });
    const auto is_there = [&](const auto& item) { return std::get<0>(item.first) == left.device; };
    require(left.lost || std::ranges::none_of(graphs_, is_there), "a device left with a graph");
    std::erase_if(graphs_, is_there);
  }

  /// Drops work in flight from the device, and work of the job that waits for it: the job repeats
  /// its step, and results of this work do not count.
  void void_what_comes_from(DeviceId device) {
    for (auto& [id, flight] : flights_) {
      flight.is_void |= flight.peer == device;
      for (const ActionId before : flight.before) {
        const auto found = flights_.find(before);
        if (found == flights_.end() || found->second.job != flight.job) continue;
        flight.is_void |= found->second.is_void;
      }
    }
  }

  void observe(const JobEnded& ended) {
    require(ended_.insert(ended.job).second, "a job ended twice");
    require(!admitted_.contains(ended.job), "a job ended with its home");
    require_quiet(ended.job);
    history_.observe(ended);
  }

  void complain(const std::string& problem) { problems_.push_back(problem); }
  void require(bool holds, const char* problem) {
    if (!holds) complain(problem);
  }
  void require_quiet(JobId job) {
    require(std::ranges::none_of(graphs_,
                                 [&](const auto& item) { return std::get<1>(item.first) == job; }),
            "a graph of the job is kept");
    for (const auto& [id, flight] : flights_) {
      require(flight.job != job, "something of the job is in flight");
    }
  }
  static std::string text(const Content& content) {
    return "buffer " + std::to_string(content.buffer) + " of job " +
           std::to_string(content.job.value) + " at step " + std::to_string(content.step) +
           ", attempt " + std::to_string(content.attempt);
  }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static int home(JobId job) { return -1 - static_cast<int>(job.value); }
  static int sum_of(int layer) { return -1 - layer; }
  const JobPlan& plan(JobId job) const { return history_.plan(job); }
  const BufferSpec& buffer(JobId job, int b) const { return plan(job).layout.buffers[index(b)]; }
  /// A block that jobs share has the same content for all, and at every step.
  Content content_of(JobId job, int b) const {
    if (const int shared = buffer(job, b).shared; shared >= 0) {
      const std::string& content = plan(job).layout.shared[index(shared)].content;
      return {kAllJobs, static_cast<int>(std::hash<std::string>()(content) & 0x7fffffff), 0};
    }
    const BufferKind kind = buffer(job, b).kind;
    const bool outlives = kind == BufferKind::weights || kind == BufferKind::batch;
    Content content{job, b, history_.step(job), outlives ? 0 : history_.attempt(job)};
    if (kind != BufferKind::sum) return content;
    content.terms = 0;
    const auto known = sums_.find({job, b});
    if (known == sums_.end()) return content;
    const bool is_open = known->second.step == content.step;
    return is_open && known->second.attempt == content.attempt ? known->second : content;
  }

  static bool same_state(const Layout& a, const Layout& b) {
    const auto homes = [](const Layout& layout) {
      std::vector<Bytes> found{layout.moments_home, layout.moments_plane, layout.sum_plane};
      for (int w : layout.weights) found.push_back(layout.buffers[index(w)].home);
      for (const auto& param : layout.params) found.push_back(param.moment_offset);
      for (const auto& layer : layout.layers) found.push_back(layer.total.home);
      return found;
    };
    return a.weights == b.weights && homes(a) == homes(b);
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
          if (a.place != b.place || a.begin >= b.end || b.begin >= a.end) continue;
          if (!a.writes && !b.writes) continue;
          complain("actions " + std::to_string(id) + " and " + std::to_string(flight.id) + " race");
        }
      }
    }
    flights_.emplace(flight.id, std::move(flight));
  }

  /// Contents count from the end of the action that writes them; queues end in order.
  void apply(const Flight& flight) {
    for (const auto& [place, content] : flight.expects) {
      const auto found = contents_.find(place);
      if (found != contents_.end() && found->second == content) continue;
      complain("action " + std::to_string(flight.id) + " expects " + text(content) + ", finds " +
               (found == contents_.end() ? "nothing" : text(found->second)));
    }
    for (const auto& [place, content] : flight.makes) contents_[place] = content;
    if (const auto* op = std::get_if<StartOp>(&flight.action)) history_.on_end(*op);
    if (const auto* op = std::get_if<StartHostOp>(&flight.action)) history_.on_end(*op);
  }

  StepHistory history_;
  std::map<ActionId, Flight> flights_;
  std::map<Place, Content> contents_;
  std::map<std::pair<JobId, int>, Content> sums_;  // as of the latest op
  std::map<std::tuple<JobId, std::int64_t, int>, int> loads_;
  std::map<std::tuple<DeviceId, JobId, int>, Graph> graphs_;  // kept
  std::set<JobId> admitted_, ended_, failed_, failed_in_op_;
  std::set<DeviceId> gone_, lost_;
  std::vector<std::string> problems_;
  std::size_t ops_seen_ = 0, strays_ = 0, graphs_used_ = 0, graphs_dropped_ = 0;
};

}  // namespace spillway::testing
