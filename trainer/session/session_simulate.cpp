#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "scheduler/simulation/controlled_shell.h"
#include "scheduler/simulation/shortened_run.h"
#include "trainer/session/session_impl.h"

namespace spillway {
namespace {

/// Makes peaks independent of the timing: a device that was short of room may fill its budget, and
/// each of several equal devices may reach the peak of all.
void level_peaks(std::vector<DeviceResult>& devices, const EngineSnapshot& snapshot) {
  for (std::size_t d = 0; d < devices.size(); ++d) {
    if (snapshot.devices[d].short_of_room) devices[d].peak_bytes = devices[d].budget_bytes;
  }
  for (DeviceResult& device : devices) {
    for (const DeviceResult& equal : devices) {
      if (equal.budget_bytes != device.budget_bytes) continue;
      device.peak_bytes = std::max(device.peak_bytes, equal.peak_bytes);
    }
  }
}

}  // namespace

/// Null if all trials ended before this session.
const SessionTrial* Session::Impl::first_planned() const {
  const auto found = std::ranges::find_if(trials, [](const auto& t) { return t->plan != nullptr; });
  return found == trials.end() ? nullptr : found->get();
}

/// For the threads that are busy in the run: one per device, and one that helps. The ops of GPUs do
/// not compete for cores.
Contention Session::Impl::measure_contention() {
  const int threads = std::min(num_host_workers(), static_cast<int>(devices.budgets().size()) + 1);
  const SessionTrial* first = first_planned();
  if (!first || devices[0].device->gpu() >= 0) return {};
  if (threads == 1) return {.threads = 1};
  if (config.estimate) return {threads, pilot.estimate_contention(threads)};
  return {threads, pilot.measure_contention(threads, *first->model, first->profile)};
}

/// By device; those that are not slowed start ops in no time.
std::vector<double> Session::Impl::measure_op_starts(const SessionTrial& trial) {
  std::map<std::string, Pilot::Devices> slowed;
  for (std::size_t d = 0; d < devices.size() && !config.estimate; ++d) {
    Device& device = *devices[d].device;
    if (device.slowdown() == 1 || devices[d].state != DeviceList::State::present) continue;
    slowed[kind_of(device)].push_back(&device);
  }
  std::vector<double> starts(devices.size());
  for (const auto& [kind, alike] : slowed) {
    const double seconds = pilot.measure_op_start(kind, alike, *trial.model);
    for (std::size_t d = 0; d < starts.size(); ++d) {
      if (kind_of(*devices[d].device) == kind) starts[d] = seconds;
    }
  }
  return starts;
}

/// The costs that are known once the trial's layers are measured. Null: without those that depend
/// on a trial.
VirtualCosts Session::Impl::known_costs(const SessionTrial* trial) const {
  VirtualCosts costs{
      .links = LinkTable(config.links),
      .network_bytes_per_s = static_cast<double>(config.hosts.network_bytes_per_s),
      .network_latency_s = config.hosts.network_latency_s,
      .host_workers = num_host_workers(),
  };
  if (trial) costs.copy_bytes_per_s = trial->planned.copy_bytes_per_s;
  for (std::size_t d = 0; d < devices.size(); ++d) {
    costs.link_bytes_per_s.push_back(static_cast<double>(devices[d].link_bytes_per_s));
    if (!trial) continue;
    costs.slowdown.push_back(slowdown_of(planner.device(*trial, d).layers, profiled_times(*trial)));
  }
  return costs;
}

VirtualCosts Session::Impl::measure_costs() {
  const SessionTrial* first = first_planned();
  VirtualCosts costs = known_costs(first);
  costs.contention = measure_contention();
  if (first) costs.op_start_s = measure_op_starts(*first);
  costs.dispatch_latency_s = pilot.measure_dispatch_latency();
  const bool has_links = !config.has_gpus() && !config.links.empty();
  const Bytes to_host = config.devices[0].imitate.link_bytes_per_s;
  double busy_threads = 0;  // a slowed device sleeps most of the time
  for (std::size_t d = 0; d < devices.size(); ++d) {
    const bool is_present = devices[d].state == DeviceList::State::present;
    if (is_present) busy_threads += 1 / devices[d].device->slowdown();
  }
  costs.copy_latency_s =
      pilot.measure_link_delay(to_host == 0 && has_links ? config.links[0].bytes_per_s : to_host,
                               static_cast<int>(std::lround(std::max(1.0, busy_threads))));
  return costs;
}

RunTotals Session::Impl::simulate(const VirtualCosts& costs, const RunLength& length,
                                  std::vector<TraceSpan>& spans) const {
  const auto make_plan = [&](JobId id, int lanes, const std::vector<DeviceId>& avoided)
                             SPILLWAY_REQUIRES(mutex) {
                               return length.shorten(planner.best_plan(trial(id), lanes, avoided));
                             };
  ControlledShell run(engine_config(), costs, make_controller(length), make_plan);
  VirtualShell& clock = run.shell();
  TraceRecorder recorder(config.max_trace_spans);
  run.on_action = [&](const Action& action) { recorder.on_action(action); };
  clock.on_completion = [&](const Done& done) { recorder.on_done(done); };
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const SessionTrial& submitted = *trials[t];
    const auto plan = submitted.ended() ? nullptr : length.shorten(submitted.plan);
    LaneDemand wanted = demand(JobId(t));
    wanted.max_steps = length.steps(wanted.max_steps);
    recorder.submit(JobId(t), plan);
    run.submit(wanted, plan, submitted.planned.summary.home_bytes);
  }
  for (int d : devices.gone()) clock.remove_device(DeviceId(d));
  run.run();
  RunTotals totals{.counters = snapshot_of(clock.engine()), .wall_s = clock.now_s()};
  for (std::size_t t = 0; t < trials.size(); ++t) {
    totals.steps.push_back(clock.engine().job(JobId(t)).step);
  }
  spans = recorder.spans();
  return totals;
}

RunResult Session::simulate(double most_ops) const {
  Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  impl.require_room_at_rungs();
  const VirtualCosts costs = impl.measure_costs();
  std::vector<std::shared_ptr<const JobPlan>> jobs;
  for (const auto& trial : impl.trials) jobs.push_back(trial->ended() ? nullptr : trial->plan);
  std::vector<TraceSpan> spans;
  const auto simulate = [&](const RunLength& length) SPILLWAY_REQUIRES(impl.mutex) {
    return impl.simulate(costs, length, spans);
  };
  const auto rungs = impl.rungs();  // lengths keep both of its numbers whole
  const std::int64_t step_of_rungs = rungs ? std::gcd(rungs->min_iter, rungs->interval) : 0;
  const RunTotals totals = impl.store.has_journal()
                               ? simulate({})
                               : simulate_shortened(jobs, step_of_rungs, most_ops, simulate);
  RunResult result = impl.summarise(totals.counters, totals.wall_s);
  for (std::size_t t = 0; t < jobs.size(); ++t) {
    if (jobs[t]) result.trials[t].steps = totals.steps[t];
  }
  result.simulated_share = totals.simulated_share;
  result.trace = std::move(spans);
  level_peaks(result.devices, totals.counters);
  return result;
}

}  // namespace spillway
