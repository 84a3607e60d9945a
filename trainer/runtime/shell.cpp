#include "trainer/runtime/shell.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <set>
#include <utility>

#include "spillway/error.h"

namespace spillway {

Shell::Shell(EngineConfig config, const std::vector<Device*>& devices, HostArena& host,
             HostPool& pool, OpRunner& runner, ShellObserver& observer, TraceRecorder* trace,
             ShellOptions options)
    : engine_(std::move(config)),
      pool_(pool),
      runner_(runner),
      observer_(observer),
      trace_(trace),
      options_(std::move(options)),
      all_homes_(host) {
  for (const LinkTable::Path& path : options_.links.paths()) {
    paths_.push_back({std::make_unique<Link>(path.bytes_per_s, path.latency_s)});
  }
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const bool is_gone = std::ranges::count(options_.gone, static_cast<int>(d)) > 0;
    const DeviceId id = take_in(std::make_unique<DevicePart>(*devices[d], is_gone));
    if (is_gone) {
      Actions told;
      engine_.remove_device(id, told);
      continue;
    }
    warm(part(id), options_.touched, [this, id](const std::string& failure) {
      if (!failure.empty()) lose(id, failure);
    });
  }
  publish();
}

Shell::~Shell() {
  error_ = std::make_exception_ptr(Error("the shell is going away"));
  while (landed_ < launched_) wait_for_one();
  for (const auto& [job, home] : homes_) {
    try {
      runner_.release(job, JobEnd::failed);
    } catch (...) {  // run() has thrown the reason
    }
  }
}

void Shell::submit(JobId job, std::shared_ptr<const JobPlan> plan, Bytes home_bytes,
                   const JobStart& start) {
  plans_[job] = plan;
  if (trace_) trace_->submit(job, plan);
  const Bytes needed = plan ? std::max(home_bytes, plan->layout.home_bytes) : 0;
  std::vector<Action> actions;
  engine_.submit(job, plan, needed, start, actions);
  publish();
  carry_out(actions);
}

void Shell::run() {
  while (is_open_ || !engine_.all_ended() || !engine_.idle()) {
    wait_for_one();
    if (error_) std::rethrow_exception(error_);
  }
}

void Shell::serve() {
  is_open_ = true;
  run();
}

void Shell::close() {
  on_thread([this] { is_open_ = false; });
}

void Shell::wait_for_one() {
  io_->restart();
  const auto work = boost::asio::make_work_guard(*io_);
  io_->run_one();
}

void Shell::call_after(std::chrono::milliseconds delay, std::function<void()> what) {
  auto timer = std::make_shared<boost::asio::steady_timer>(*io_, delay);
  timer->async_wait([timer, what = std::move(what)](const boost::system::error_code& error) {
    if (!error) what();
  });
}

void Shell::command(std::function<void(Actions&)> change) {
  on_thread([this, change = std::move(change)] {
    Actions actions;
    change(actions);
    carry_out(actions);
  });
}

void Shell::stop_all() {
  command([this](Actions& actions) {
    for (const auto& [job, plan] : plans_) engine_.stop(job, actions);
  });
}

void Shell::stop(JobId job) {
  command([this, job](Actions& actions) { engine_.stop(job, actions); });
}

void Shell::fail(JobId job, std::string reason) {
  command([this, job, reason = std::move(reason)](Actions& actions) {
    engine_.fail(job, reason, actions);
  });
}

void Shell::pause(JobId job) {
  command([this, job](Actions& actions) { engine_.pause(job, actions); });
}

void Shell::resume(JobId job) {
  command([this, job](Actions& actions) { engine_.resume(job, actions); });
}

void Shell::hold(JobId job, Hold hold) {
  command([this, job, hold](Actions& actions) { engine_.hold(job, hold, actions); });
}

void Shell::suspend(JobId job, bool suspended) {
  command([this, job, suspended](Actions& actions) { engine_.suspend(job, suspended, actions); });
}

void Shell::finish(JobId job) {
  command([this, job](Actions& actions) { engine_.finish(job, actions); });
}

void Shell::resize(JobId job, std::shared_ptr<const JobPlan> plan) {
  command([this, job, plan = std::move(plan)](Actions& actions) {
    engine_.resize(job, plan, actions);
  });
}

void Shell::interrupt(JobId job) {
  command([this, job](Actions& actions) { engine_.interrupt(job, actions); });
}

void Shell::go_on(JobId job, std::shared_ptr<const JobPlan> plan, bool one_step) {
  command([this, job, plan = std::move(plan), one_step](Actions& actions) {
    engine_.go_on(job, plan, one_step, actions);
  });
}

EngineSnapshot Shell::snapshot() const {
  const MutexLock lock(snapshot_mutex_);
  return snapshot_;
}

void Shell::publish() {
  const MutexLock lock(snapshot_mutex_);
  snapshot_ = snapshot_of(engine_);
}

std::future<Shell::Status> Shell::status() {
  const auto promise = std::make_shared<std::promise<Status>>();  // shared: a function is copied
  on_thread([this, promise] {
    Status status{.engine = status_of(engine_), .now_s = seconds(Clock::now())};
    for (auto& [id, span] : status.engine.under_way) {
      span.started_s = flights_.at(id).launched_s;
    }
    promise->set_value(std::move(status));
  });
  return promise->get_future();
}

/// The first that may be reported. The end of an op may land before that of the copy of its inputs.
/// Then it is held, and so are the ends of later ops of its device.
std::vector<Done>::iterator Shell::next_to_report() {
  std::set<DeviceId> held;
  return std::ranges::find_if(held_, [&](const Done& done) {
    const Flight& flight = flights_.at(done.id);
    const bool waits =
        std::ranges::any_of(flight.after, [&](ActionId id) { return flights_.contains(id); });
    if (waits) held.insert(flight.device);
    return !waits && !(flight.is_op && held.contains(flight.device));
  });
}

/// Actions on a lost device have been reported already.
void Shell::land(Done done) {
  if (!flights_.contains(done.id)) return;
  held_.push_back(std::move(done));
  for (;;) {
    const auto next = next_to_report();
    if (next == held_.end()) return;
    const Done ready = std::move(*next);
    held_.erase(next);
    report(ready);
  }
}

void Shell::report(const Done& done) {
  const auto flight = flights_.extract(done.id);
  if (flight.mapped().device.valid()) reported(flight.mapped());
  Actions actions;
  if (trace_) trace_->on_done(done);
  engine_.on_done(done, actions);
  carry_out(actions);
}

void Shell::carry_out(const Actions& actions) {
  for (const Action& action : actions) {
    if (trace_) trace_->on_action(action);
    std::visit([this](const auto& a) { perform(a); }, action);
  }
}

OpCall Shell::resolve(const StartOp& start) {
  const auto& plan = plans_.at(start.job);
  DevicePart& on = part(start.device);
  OpCall call{.job = start.job,
              .device = on.device,
              .step = start.step,
              .plan = plan,
              .program = plan->programs[start.step_kind].get(),
              .unit = start.unit,
              .op = start.op,
              .has_graph = start.has_graph,
              .graphs = &on.graphs};
  call.buffers.reserve(start.offsets.size());
  std::size_t next = 0;
  for_each_buffer(call.unit_spec(), call.op_spec(), [&](int buffer, BufferUse) {
    const Bytes bytes = plan->layout.buffers[at(buffer)].bytes;
    call.buffers[buffer] = on.arena->at(start.offsets[next++], bytes);
  });
  for (int i = 0; i < call.op_spec().num_numbers; ++i) call.numbers.push_back(on.numbers.take());
  return call;
}

void Shell::perform(const StartOp& start) {
  struct Task {  // shared by the work and the notification behind it
    OpCall call;
    std::vector<Flight> after;
    Flight flight;
    Bytes workspace = 0;
    Done done;
    OpRunner::Keep keep;
  };
  const auto task = std::make_shared<Task>();
  task->call = resolve(start);
  Device& device = *task->call.device;
  const OpSpec& op = task->call.op_spec();
  task->workspace = op.workspace;
  task->flight = {.failed = std::make_shared<std::atomic<bool>>(false),
                  .after = start.after,
                  .device = start.device,
                  .is_op = true,
                  .planned_s = op.seconds(start.has_graph) * device.slowdown()};
  task->done.id = start.id;
  Queue& queue = device.compute();
  for (ActionId id : start.after) {
    const auto flight = flights_.find(id);
    if (flight == flights_.end()) continue;
    queue.wait(flight->second.event);
    task->after.push_back(flight->second);
  }
  queue.notify([this, task] { task->done.started_s = seconds(Clock::now()); });
  queue.enqueue([this, task, &device] {
    ActivationMeter& meter = device.activations();
    const OpCall& call = task->call;
    const bool keeps_graph = call.has_graph && call.op_spec().kind == OpKind::forward;
    const Bytes kept = call.graphs->bytes() + (keeps_graph ? call.graph_bytes() : 0);
    try {
      device.begin_op();
      meter.begin_op(task->workspace + kept);
      for (const Flight& flight : task->after) {
        if (*flight.failed) throw Error("an op that this one depends on has failed");
      }
      task->keep = runner_.run_op(task->call);
    } catch (const DeviceLost& lost) {
      task->done.lost = true;
      task->done.error = lost.why;
    } catch (...) {
      task->done.error = current_reason();
    }
    *task->flight.failed = !task->done.error.empty();
    const Bytes peak = meter.peak_since_begin();
    task->done.activation_peak = peak - std::min(peak, kept);  // graphs count as planned
  });
  task->flight.event = queue.record();
  launch(start.id, task->flight);
  queue.notify([this, task, &device] {
    task->done.finished_s = seconds(Clock::now());
    note_failure(device, task->done);
    post(task->flight.device, task->done, std::move(task->keep), task->call.numbers);
  });
}

/// The memory is free when this has run, so it counts as work of the compute queue.
void Shell::perform(const DropGraph& drop) {
  DevicePart& on = part(drop.device);
  Queue& queue = on.device->compute();
  const auto done = std::make_shared<Done>(Done{.id = drop.id});
  queue.enqueue([this, done, &graphs = on.graphs, ref = BufferRef{drop.job, drop.buffer}] {
    done->started_s = seconds(Clock::now());
    graphs.take(ref);
    done->finished_s = seconds(Clock::now());
  });
  launch(drop.id, {.event = queue.record(), .failed = {}, .device = drop.device});
  queue.notify([this, done, device = drop.device] { post(device, *done); });
}

void Shell::perform(const StartCopy& start) {
  DevicePart& on = part(start.device);
  Device* const source = start.peer.valid() ? part(start.peer).device : nullptr;
  const auto finished = [this, start, device = on.device, source](Clock::time_point begin,
                                                                  Clock::time_point end) {
    Done done{.id = start.id, .started_s = seconds(begin), .finished_s = seconds(end)};
    note_failure(*device, done);
    if (source) require_good(start.peer, *source);
    post(start.device, std::move(done));
  };
  const int path = source ? options_.links.path(start.peer.index(), start.device.index()) : -1;
  Flight flight{.failed = std::make_shared<std::atomic<bool>>(false),
                .device = start.device,
                .peer = start.peer,
                .planned_s = planned_s(start, path),
                .path = path};
  if (path >= 0) {
    flight.path_s = flight.planned_s;
    flight.planned_s = paths_[at(path)].planned_s += flight.path_s;
  }
  flight.event = copy(start, path >= 0 ? paths_[at(path)].link.get() : nullptr, finished);
  launch(start.id, std::move(flight));
}

Event Shell::copy(const StartCopy& start, Link* link, Copier::Finished finished) {
  DevicePart& on = part(start.device);
  std::byte* const range = on.arena->at(start.device_offset, start.bytes);
  if (start.peer.valid()) {
    const std::byte* const from = part(start.peer).arena->at(start.peer_offset, start.bytes);
    return on.copier.from_device(range, from, start.bytes, link, std::move(finished));
  }
  std::byte* const home = homes_.at(start.job)->at(start.home);
  return start.direction == CopyDirection::to_device
             ? on.copier.to_device(range, home, start.bytes, std::move(finished))
             : on.copier.to_host(home, range, start.bytes, std::move(finished));
}

/// An estimate, without the copies before it.
double Shell::planned_s(const StartCopy& start, int path) const {
  constexpr double kUnknownRate = 1e9;
  const auto bytes = static_cast<double>(start.bytes);
  if (path >= 0) {
    const LinkTable::Path& link = options_.links.paths()[at(path)];
    return bytes / link.bytes_per_s + link.latency_s;
  }
  const auto rate = static_cast<double>(part(start.device).device->link_bytes_per_s());
  return bytes / (rate > 0 ? rate : kUnknownRate);
}

void Shell::perform(const StartHostOp& start) {
  const auto& plan = plans_.at(start.job);
  const HostCall call{.job = start.job,
                      .step = start.step,
                      .plan = plan,
                      .program = plan->programs[start.step_kind].get(),
                      .op = start.op,
                      .home = homes_.at(start.job).get()};
  launch(start.id, {});
  if (call.program->host_ops[at(call.op)].kind == HostOpKind::exchange) {
    return exchange(start.id, call);
  }
  pool_.submit(call.program->host_ops[at(call.op)].grains, [this, call, id = start.id] {
    Done done{.id = id, .started_s = seconds(Clock::now())};
    try {
      runner_.run_host_op(call);
    } catch (...) {
      done.error = current_reason();
    }
    done.finished_s = seconds(Clock::now());
    post({}, std::move(done));
  });
}

/// The network works while the host's threads do other things.
void Shell::exchange(ActionId id, const HostCall& call) {
  Done done{.id = id, .started_s = seconds(Clock::now())};
  runner_.exchange(call, [this, done](bool is_lost) mutable {
    done.lost = is_lost;
    done.finished_s = seconds(Clock::now());
    post({}, done);
  });
}

/// Reserving a home may take seconds: its pages are cleared, and locked for GPUs.
void Shell::perform(const AdmitJob& admission) {
  observer_.on_started(admission.job);
  launch(admission.id, {});
  pool_.submit(1, [this, admission, plan = plans_.at(admission.job)] {
    Done done{.id = admission.id, .started_s = seconds(Clock::now())};
    const auto home = std::make_shared<Home>();
    try {
      all_homes_.fill(
          *home, admission.home_bytes, plan->layout.shared,
          [&](const SharedBlock& block) { return runner_.find(admission.job, block); },
          [&] { runner_.admit(admission.job, *home); });
    } catch (...) {
      done.error = current_reason();
    }
    done.finished_s = seconds(Clock::now());
    const auto keep_home = [this, job = admission.job, home] {
      if (*home) homes_[job] = home;  // until it is released
    };
    landing(keep_home, [this, done = std::move(done)] { land(done); });
  });
}

void Shell::perform(const StepCommitted& committed) {
  publish();
  observer_.on_committed(committed);
}

void Shell::perform(const JobRested& rested) { observer_.on_rested(rested); }

void Shell::perform(const JobInterrupted& interrupted) { observer_.on_interrupted(interrupted); }

void Shell::perform(const StepRedone& redone) { observer_.on_redone(redone.job, redone.step); }

void Shell::perform(const PlanChanged& changed) {
  plans_[changed.job] = changed.plan;
  observer_.on_resized(changed.job, *changed.plan);
}

/// A last checkpoint may wait for other checkpoints, and freeing a home takes time.
void Shell::perform(const ReleaseJob& release) {
  launch(release.id, {});
  const auto found = homes_.find(release.job);
  const auto home = found == homes_.end() ? nullptr : std::move(found->second);
  homes_.erase(release.job);
  pool_.submit(1, [this, release, home] {
    Done done{.id = release.id, .started_s = seconds(Clock::now())};
    try {
      if (home) runner_.release(release.job, release.end);
    } catch (...) {
      done.error = current_reason();
    }
    if (home) all_homes_.release(*home);
    done.finished_s = seconds(Clock::now());
    post({}, std::move(done));
  });
}

void Shell::perform(const JobEnded& ended) {
  publish();
  observer_.on_ended(ended.job, ended.end, ended.reason);
}

}  // namespace spillway
