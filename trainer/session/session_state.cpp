#include <future>
#include <utility>

#include "trainer/session/session_impl.h"

namespace spillway {
namespace {

SessionState::Device device_state(const DeviceList::Entry& device, Bytes used_bytes) {
  return {.kind = device.device->kind(),
          .state = to_string(device.state),
          .budget_bytes = device.budget,
          .used_bytes = used_bytes};
}

/// `now`: null if no engine has the trial.
SessionState::Trial trial_state(const SessionTrial& trial, const EngineStatus::Job* now) {
  SessionState::Trial state{.name = trial.config.name,
                            .state = trial.result.state,
                            .step = trial.result.steps,
                            .max_steps = trial.config.train.max_steps};
  if (!now) return state;
  for (const DeviceId device : now->tracks) {
    state.lanes.push_back(device.valid() ? static_cast<int>(device.value) : -1);
  }
  const bool says_why = !has_ended(state.state) && !trial.result.reason.empty();
  state.waits_for = says_why ? trial.result.reason : now->waits_for;
  return state;
}

}  // namespace

/// Nothing if there is no run, or it ends before it can answer.
std::optional<Shell::Status> Session::Impl::status() {
  std::future<Shell::Status> status;
  {
    const MutexLock lock(mutex);
    if (!shell) return std::nullopt;
    status = shell->status();
  }
  try {
    return status.get();
  } catch (const std::future_error&) {
    return std::nullopt;
  }
}

SessionState Session::Impl::state(const Shell::Status& status) const {
  const EngineStatus& engine = status.engine;
  SessionState state{.time_s = status.now_s, .host_used_bytes = engine.host_used};
  for (std::size_t d = 0; d < devices.size(); ++d) {
    state.devices.push_back(
        device_state(devices[d], d < engine.used.size() ? engine.used[d] : Bytes{0}));
  }
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const bool known = t < engine.jobs.size();
    state.trials.push_back(trial_state(*trials[t], known ? &engine.jobs[t] : nullptr));
  }
  for (const auto& [id, span] : engine.under_way) state.under_way.push_back(span);
  return state;
}

SessionState Session::state() const {
  const std::optional<Shell::Status> status = impl_->status();
  const MutexLock lock(impl_->mutex);
  return impl_->state(status.value_or(Shell::Status{.now_s = impl_->run_s}));
}

}  // namespace spillway
