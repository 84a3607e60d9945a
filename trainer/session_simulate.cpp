#include <algorithm>

#include "scheduler/controlled_shell.h"
#include "trainer/handover.h"
#include "trainer/host_rates.h"
#include "trainer/session_impl.h"

namespace spillway {
namespace {

/// Peaks whatever the timing: where a device was short of room it may fill its budget, and any of
/// several equal ones may come to the peak of all.
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

/// Null: all ended before this session.
const SessionTrial* Session::Impl::first_planned() const {
  const auto found = std::ranges::find_if(trials, [](const auto& t) { return t->plan != nullptr; });
  return found == trials.end() ? nullptr : found->get();
}

/// Of the threads that are busy in the run: one a device, and one that helps.
Crowding Session::Impl::measure_crowding() const {
  const int threads = std::min(num_host_workers(), static_cast<int>(devices.budgets().size()) + 1);
  const SessionTrial* first = first_planned();
  if (!first) return {};
  const bool on_gpus = devices[0].device->gpu() >= 0;  // whose ops take no core
  if (threads == 1 || on_gpus) return {.threads = 1};
  if (config.estimate) {
    return {threads, spillway::measure_crowding(threads, matrix_product)};
  }
  return {threads, pilot.measure_crowding(threads, *first->model, first->profile)};
}

RunResult Session::simulate() const {
  const Impl& impl = *impl_;
  check();
  VirtualCosts costs{.host_workers = impl.num_host_workers()};
  costs.crowding = impl.measure_crowding();
  const SessionTrial* first = impl.first_planned();
  if (first) costs.copy_bytes_per_s = first->planned.copy_bytes_per_s;
  for (std::size_t d = 0; d < impl.devices.size(); ++d) {
    costs.link_bytes_per_s.push_back(static_cast<double>(impl.devices[d].link_bytes_per_s));
    if (!first) continue;
    costs.slowdown.push_back(
        slowdown_of(impl.plan_device(*first, d).layers, impl.profiled_times(*first)));
  }
  costs.handover_s = measure_handover();
  costs.copy_latency_s = measure_link_delay(impl.config.devices[0].link_bytes_per_s,
                                            static_cast<int>(impl.devices.budgets().size()));
  ControlledShell run(impl.engine_config(), costs, impl.make_controller(),
                      [&](JobId id, int lanes, const std::vector<DeviceId>& avoided) {
                        return impl.best_plan(*impl.trials[id.index()], lanes, avoided);
                      });
  VirtualShell& shell = run.shell();
  TraceRecorder trace(impl.config.max_trace_spans);
  run.on_action = [&](const Action& action) { trace.on_action(action); };
  shell.on_completion = [&](const Done& done) { trace.on_done(done); };
  if (impl.config.early_terminate) run.stop_early(impl.make_halving());
  for (std::size_t t = 0; t < impl.trials.size(); ++t) {
    const SessionTrial& trial = *impl.trials[t];
    trace.submit(JobId(t), trial.plan);
    run.submit(impl.demand(JobId(t)), trial.plan, trial.planned.summary.home_bytes);
  }
  for (int d : impl.devices.gone()) shell.remove_device(DeviceId(d));
  run.run();
  const EngineSnapshot snapshot = snapshot_of(shell.engine());
  RunResult result = impl.summarise(snapshot, shell.now_s());
  for (std::size_t t = 0; t < impl.trials.size(); ++t) {
    if (impl.trials[t]->plan) result.trials[t].steps = shell.engine().job(JobId(t)).step;
  }
  result.trace = trace.spans();
  level_peaks(result.devices, snapshot);
  return result;
}

}  // namespace spillway
