#include "spillway/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/base/config_check.h"
#include "spilling/tiers/home_store.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/host_groups.h"
#include "trainer/hosts/host_backend.h"
#include "trainer/session/session_impl.h"
#include "trainer/torch/counting_allocator.h"
#include "trainer/torch/portable_kernels.h"

namespace spillway {
namespace {

/// A GPU needs a share for activations. Throws ConfigError (`activation_share`).
MemorySplit split_of(const SessionConfig& config) {
  constexpr double kOfGpus = 0.25;
  const double share = config.activation_share;
  ConfigCheck check;
  FieldCheck(check).field("activation_share", share, kActivationShare, "");
  check.finish();
  return {share > 0 || !config.has_gpus() ? share : kOfGpus};
}

/// Before LibTorch computes. Throws ConfigError (`numerics`).
void choose_kernels(const SessionConfig& config) {
  if (config.numerics == NumericsKind::native) return;
  if (config.has_gpus()) {
    throw ConfigError("numerics", 0,
                      "is portable, but kernels of GPUs cannot be chosen; use native");
  }
  use_portable_kernels();
}

/// Throws all errors of the configuration together.
DeviceList open_devices(const SessionConfig& config) {
  ConfigCheck check;
  std::optional<DeviceList> devices;
  check.run([&] { devices.emplace(config.devices, split_of(config)); });
  for (std::size_t l = 0; l < config.links.size(); ++l) {
    require_valid(config.links[l], fmt::format("links[{}].", l), config.devices.size(), check);
  }
  check.run([&] { require_home_path(config.offload_path); });
  check.require(config.max_events > 0, "max_events", "is 0; keep at least the last one");
  check.require(config.max_history > 0, "max_history", "is 0; keep at least the last step");
  if (config.early_terminate) check.run([&] { require_valid(*config.early_terminate); });
  check.require(config.hosts.size >= 1, "hosts.size",
                fmt::format("is {}, must be at least 1", config.hosts.size));
  if (config.hosts.several()) {
    check.require(config.hosts.number >= 0 && config.hosts.number < config.hosts.size,
                  "hosts.number",
                  fmt::format("is {}, must be from 0 to {}: below hosts.size", config.hosts.number,
                              config.hosts.size - 1));
    check.require(!config.early_terminate, "sweep.early_terminate", kNotWithHosts);
    check.require(config.sharing == SharingKind::none, "scheduling.sharing",
                  "must be none with several hosts or hosts.start_size");
    check.run([&] { require_backend(config.hosts, config.has_gpus()); });
  }
  check.finish();
  return std::move(*devices);
}

/// Null for one that stays alone, or only plans. Fewer hosts may come than `config` has.
std::unique_ptr<Hosts> meet_hosts(SessionConfig& config) {
  if (!config.hosts.several() || config.hosts.endpoint.empty()) return nullptr;
  std::optional<int> gpu;
  if (config.has_gpus()) gpu = config.devices.front().index;
  auto hosts = std::make_unique<Hosts>(config.hosts, gpu);
  config.hosts = hosts->config();
  return hosts;
}

/// Including the lists.
TrialResult whole_result(const SessionTrial& trial) {
  const auto list = [](const auto& values) { return std::vector(values.begin(), values.end()); };
  TrialResult result = trial.result;
  result.dropped_steps = trial.history.num_dropped();
  result.losses = list(trial.history.losses());
  result.gradient_norms = list(trial.history.gradient_norms());
  result.eval_losses = list(trial.history.eval_losses());
  result.eval_metrics = list(trial.history.eval_metrics());
  result.changes = trial.history.changes();
  return result;
}

}  // namespace

Session::Impl::Impl(SessionConfig session_config)
    : config(std::move(session_config)),
      policy(make_policy(config.policy)),
      allocator(make_allocator(config.sharing)),
      devices(open_devices(config)),
      home_store(make_home_store(config.offload_path, *devices[0].device)),
      host(config.host_memory, *home_store),
      pilot(config.pilot_cache, measure_load,
            config.hosts.meets_again ? BusyCosts::keep : BusyCosts::drop),
      hosts(meet_hosts(config)),
      trace(config.max_trace_spans),
      events(config.max_events),
      store(config, devices.exact_kind(),
            [this](JobId id, const TrialCheckpoints::Saved& saved) { on_saved(id, saved); }),
      pool(num_host_workers()) {
  if (config.has_gpus()) gpu_kernels.emplace();
}

int Session::Impl::num_host_workers() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

double Session::Impl::now_s() const {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

EngineConfig Session::Impl::engine_config() const {
  EngineConfig engine{
      .host_budget = config.host_memory, .policy = policy, .double_buffer = config.double_buffer};
  engine.split = devices[0].device->split();
  for (std::size_t d = 0; d < devices.size(); ++d) {
    engine.device_budgets.push_back(devices[d].budget);
  }
  return engine;
}

RunResult Session::Impl::summarise(const EngineSnapshot& snapshot, double wall_s) const {
  RunResult result{.host_budget_bytes = config.host_memory,
                   .host_peak_bytes = snapshot.host_peak,
                   .wall_s = wall_s};
  for (const auto& trial : trials) result.trials.push_back(whole_result(*trial));
  double hidden_s = 0;
  for (std::size_t d = 0; d < snapshot.devices.size(); ++d) {
    const DeviceCounters& counters = snapshot.devices[d];
    result.devices.push_back({.kind = devices[d].device->kind(),
                              .budget_bytes = devices[d].budget,
                              .peak_bytes = counters.peak_bytes,
                              .activation_peak_bytes = counters.activation_peak_bytes,
                              .busy_share = wall_s > 0 ? counters.busy_s / wall_s : 0,
                              .h2d_bytes = counters.h2d_bytes,
                              .d2h_bytes = counters.d2h_bytes,
                              .ops = counters.ops,
                              .loads = counters.loads,
                              .prefetches = counters.prefetches,
                              .evictions = counters.evictions,
                              .kept_graphs = counters.kept_graphs});
    result.h2d_bytes += counters.h2d_bytes;
    result.d2h_bytes += counters.d2h_bytes;
    result.h2d_weight_bytes += counters.h2d_weight_bytes;
    result.h2d_shared_bytes += counters.h2d_shared_bytes;
    result.copy_s += counters.copy_s;
    result.copy_wait_s += counters.stall_s;
    hidden_s += counters.hidden_s;
  }
  if (result.copy_s > 0) result.copy_hidden_share = hidden_s / result.copy_s;
  return result;
}

Session::Session(SessionConfig config) {
  choose_kernels(config);
  initialize_torch();
  impl_ = std::make_unique<Impl>(std::move(config));
}

std::vector<SessionEvent> Session::poll(std::uint64_t sequence, double wait_s) const {
  return impl_->events.poll(sequence, wait_s);
}

RunResult Session::result() const {
  const Impl& impl = *impl_;
  const MutexLock lock(impl.mutex);
  if (impl.shell) return impl.summarise(impl.shell->snapshot(), impl.now_s() - impl.run_begin_s);
  RunResult result = impl.summarise(impl.final_snapshot, impl.run_s);
  result.trace = impl.trace.spans();
  return result;
}

}  // namespace spillway
