#include "trainer/state_gate.h"

namespace spillway {

StateGate::StateGate(std::size_t num_params, std::int64_t first_step)
    : params_(num_params, {.version = first_step}) {}

void StateGate::begin_update(std::size_t param) {
  std::unique_lock lock(mutex_);
  const Param& state = params_[param];
  changed_.wait(lock, [&] { return cancelled_ || !state.is_wanted || state.version < snapshot_; });
}

void StateGate::end_update(std::size_t param) {
  const std::lock_guard lock(mutex_);
  ++params_[param].version;
  changed_.notify_all();
}

std::int64_t StateGate::version(std::size_t param) const {
  const std::lock_guard lock(mutex_);
  return params_[param].version;
}

void StateGate::begin_snapshot(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  snapshot_ = step;
  for (Param& param : params_) param.is_wanted = true;
}

bool StateGate::wait_for(std::size_t param) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return cancelled_ || params_[param].version >= snapshot_; });
  return params_[param].version == snapshot_;
}

void StateGate::release(std::size_t param) {
  const std::lock_guard lock(mutex_);
  params_[param].is_wanted = false;
  changed_.notify_all();
}

void StateGate::end_snapshot() {
  const std::lock_guard lock(mutex_);
  snapshot_ = -1;
  for (Param& param : params_) param.is_wanted = false;
  changed_.notify_all();
}

void StateGate::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

}  // namespace spillway
