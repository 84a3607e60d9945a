#include "trainer/checkpoint/state_gate.h"

#include <utility>

namespace spillway {

StateGate::StateGate(std::size_t num_params, std::int64_t first_step)
    : num_params_(num_params), params_(num_params, {.version = first_step}) {}

void StateGate::begin_update(std::size_t param) {
  const MutexLock lock(mutex_);
  const Param& state = params_[param];
  changed_.wait(mutex_, [&]() SPILLWAY_REQUIRES(mutex_) {
    return cancelled_ || !state.is_wanted || state.version < snapshot_;
  });
}

void StateGate::end_update(std::size_t param) {
  std::function<void()> ready;
  {
    const MutexLock lock(mutex_);
    const bool comes_to_it = ++params_[param].version == snapshot_;
    if (comes_to_it && --num_behind_ == 0) ready = std::exchange(ready_, {});
    changed_.notify_all();
  }
  if (ready) ready();
}

bool StateGate::is_read_before(std::int64_t step) const {
  const MutexLock lock(mutex_);
  return snapshot_ >= 0 && snapshot_ < step;
}

std::int64_t StateGate::version(std::size_t param) const {
  const MutexLock lock(mutex_);
  return params_[param].version;
}

void StateGate::begin_snapshot(std::int64_t step, std::function<void()> ready) {
  {
    const MutexLock lock(mutex_);
    snapshot_ = step;
    num_behind_ = 0;
    for (Param& param : params_) {
      param.is_wanted = true;
      if (param.version < step) ++num_behind_;
    }
    if (num_behind_ > 0 && !cancelled_) ready_ = std::exchange(ready, {});
  }
  if (ready) ready();
}

bool StateGate::wait_for(std::size_t param) {
  const MutexLock lock(mutex_);
  changed_.wait(mutex_, [&]() SPILLWAY_REQUIRES(mutex_) {
    return cancelled_ || params_[param].version >= snapshot_;
  });
  return params_[param].version == snapshot_;
}

void StateGate::release(std::size_t param) {
  const MutexLock lock(mutex_);
  params_[param].is_wanted = false;
  changed_.notify_all();
}

void StateGate::end_snapshot() {
  const MutexLock lock(mutex_);
  snapshot_ = -1;
  for (Param& param : params_) param.is_wanted = false;
  changed_.notify_all();
}

void StateGate::cancel() {
  std::function<void()> ready;
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    ready = std::exchange(ready_, {});
    changed_.notify_all();
  }
  if (ready) ready();
}

}  // namespace spillway
