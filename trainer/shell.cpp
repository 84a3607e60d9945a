#include "trainer/shell.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "core/error.h"

namespace spillway {

Shell::Shell(EngineConfig config, const std::vector<Device*>& devices, HostArena& host,
             HostPool& pool, OpRunner& runner, ShellObserver& observer, TraceRecorder* trace)
    : engine_(std::move(config)),
      host_(host),
      pool_(pool),
      runner_(runner),
      observer_(observer),
      trace_(trace) {
  for (Device* device : devices) devices_.push_back(std::make_unique<DevicePart>(device));
  publish();
}

Shell::~Shell() {
  error_ = std::make_exception_ptr(Error("the shell is going away"));
  while (landed_ < launched_) wait_for_one();
}

void Shell::submit(JobId job, std::shared_ptr<const JobPlan> plan) {
  plans_[job] = plan;
  if (trace_) trace_->submit(job, plan);
  std::vector<Action> actions;
  const Bytes home_bytes = plan->layout.home_bytes;
  engine_.submit(job, std::move(plan), home_bytes, actions);
  carry_out(std::move(actions));
}

void Shell::run() {
  while (!engine_.all_ended() || !engine_.idle()) {
    wait_for_one();
    if (error_) std::rethrow_exception(error_);
  }
}

void Shell::wait_for_one() {
  io_->restart();
  const auto work = boost::asio::make_work_guard(*io_);
  io_->run_one();
}

void Shell::stop_all() {
  const auto io = io_;
  boost::asio::post(*io, [this] {
    for (const auto& [job, plan] : plans_) {
      std::vector<Action> actions;
      engine_.stop(job, actions);
      carry_out(std::move(actions));
    }
  });
}

EngineSnapshot Shell::snapshot() const {
  const std::lock_guard lock(snapshot_mutex_);
  return snapshot_;
}

void Shell::publish() {
  const std::lock_guard lock(snapshot_mutex_);
  snapshot_ = snapshot_of(engine_);
}

/// From any thread to the engine's.
void Shell::post(Done done) {
  const auto io = io_;
  boost::asio::post(*io, [this, done = std::move(done)] {
    ++landed_;
    if (error_) return;
    try {
      land(done);
    } catch (...) {
      error_ = std::current_exception();
    }
  });
}

/// An op may end, and say so, before the thread that moved its bytes has said that they arrived.
bool Shell::may_report(const Done& done) const {
  return std::ranges::none_of(flights_.at(done.id).after,
                              [&](ActionId id) { return flights_.contains(id); });
}

void Shell::land(Done done) {
  held_.push_back(std::move(done));
  for (;;) {
    const auto next = std::ranges::find_if(held_, [&](const Done& d) { return may_report(d); });
    if (next == held_.end()) return;
    const Done report = std::move(*next);
    held_.erase(next);
    flights_.erase(report.id);
    std::vector<Action> actions;
    if (trace_) trace_->on_done(report);
    engine_.on_done(report, actions);
    carry_out(std::move(actions));
  }
}

void Shell::carry_out(std::vector<Action> actions) {
  for (const Action& action : actions) {
    if (trace_) trace_->on_action(action);
    std::visit([this](const auto& a) { perform(a); }, action);
  }
}

OpCall Shell::resolve(const StartOp& start) const {
  const JobPlan& plan = *plans_.at(start.job);
  const DevicePart& part = *devices_[start.device.index()];
  OpCall call{.job = start.job,
              .device = part.device,
              .step = start.step,
              .program = plan.programs[start.flavor].get(),
              .unit = start.unit,
              .op = start.op};
  const UnitSpec& unit = call.program->units[at(start.unit)];
  const OpSpec& op = call.program->ops[at(start.op)];
  std::size_t next = 0;
  const auto take = [&](const std::vector<int>& buffers, std::vector<std::byte*>& pointers) {
    for (int b : buffers) {
      const Bytes bytes = plan.layout.buffers[at(b)].bytes;
      pointers.push_back(part.arena.at(start.offsets[next++], bytes));
    }
  };
  take(unit.weights, call.weights);
  take(unit.sums, call.sums);
  take(op.inputs, call.inputs);
  take(op.outputs, call.outputs);
  return call;
}

void Shell::perform(const StartOp& start) {
  struct Task {  // shared by the work and the notification behind it
    OpCall call;
    std::vector<Flight> after;
    Flight flight;
    Bytes workspace = 0;
    Done done;
  };
  ++launched_;
  const auto task = std::make_shared<Task>();
  task->call = resolve(start);
  task->workspace = task->call.program->ops[at(start.op)].workspace;
  task->flight.failed = std::make_shared<std::atomic<bool>>(false);
  task->flight.after = start.after;
  task->done.id = start.id;
  Queue& queue = devices_[start.device.index()]->device->compute();
  for (ActionId id : start.after) {
    const auto flight = flights_.find(id);
    if (flight == flights_.end()) continue;
    queue.wait(flight->second.event);
    task->after.push_back(flight->second);
  }
  queue.enqueue([this, task] {
    task->done.started_s = seconds(Clock::now());
    ActivationMeter& meter = task->call.device->activations();
    meter.begin_op(task->workspace);
    try {
      for (const Flight& flight : task->after) {
        if (*flight.failed) throw Error("an op that this one depends on has failed");
      }
      runner_.run_op(task->call);
    } catch (const std::exception& error) {
      task->done.error = error.what();
      *task->flight.failed = true;
    }
    task->done.activation_peak = meter.peak_since_begin();
  });
  task->flight.event = queue.record();
  flights_[start.id] = task->flight;
  queue.notify([this, task] {
    task->done.finished_s = seconds(Clock::now());
    post(task->done);
  });
}

void Shell::perform(const StartCopy& start) {
  ++launched_;
  DevicePart& part = *devices_[start.device.index()];
  std::byte* device = part.arena.at(start.device_offset, start.bytes);
  std::byte* home = homes_.at(start.job).data() + start.home;
  const auto finished = [this, id = start.id](Clock::time_point begin, Clock::time_point end) {
    post({.id = id, .started_s = seconds(begin), .finished_s = seconds(end)});
  };
  Flight flight{.event = {}, .failed = std::make_shared<std::atomic<bool>>(false)};
  flight.event = start.direction == CopyDirection::to_device
                     ? part.copier.to_device(device, home, start.bytes, finished)
                     : part.copier.to_host(home, device, start.bytes, finished);
  flights_[start.id] = std::move(flight);
}

void Shell::perform(const StartHostOp& start) {
  ++launched_;
  const HostCall call{.job = start.job,
                      .step = start.step,
                      .program = plans_.at(start.job)->programs[start.flavor].get(),
                      .op = start.op,
                      .home = homes_.at(start.job).data()};
  flights_[start.id] = {};
  pool_.submit([this, call, id = start.id] {
    Done done{.id = id, .started_s = seconds(Clock::now())};
    try {
      runner_.run_host_op(call);
    } catch (const std::exception& error) {
      done.error = error.what();
    }
    done.finished_s = seconds(Clock::now());
    post(std::move(done));
  });
}

void Shell::perform(const AdmitJob& admission) {
  ++launched_;
  observer_.on_started(admission.job);
  flights_[admission.id] = {};
  Done done{.id = admission.id, .started_s = seconds(Clock::now())};
  try {
    homes_[admission.job] = host_.reserve(admission.home_bytes);
  } catch (const std::exception& error) {
    done.error = error.what();
    done.finished_s = done.started_s;
    post(std::move(done));
    return;
  }
  pool_.submit([this, done, job = admission.job, home = homes_.at(admission.job).data()]() mutable {
    try {
      runner_.admit(job, home);
    } catch (const std::exception& error) {
      done.error = error.what();
    }
    done.finished_s = seconds(Clock::now());
    post(std::move(done));
  });
}

void Shell::perform(const StepCommitted& committed) {
  publish();
  observer_.on_committed(committed.job, committed.step);
}

void Shell::perform(const JobEnded& ended) {
  homes_.erase(ended.job);
  publish();
  observer_.on_ended(ended.job, ended.end, ended.reason);
}

}  // namespace spillway
