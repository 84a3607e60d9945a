#include "core/device/fault_switch.h"

#include <fmt/format.h>

#include "core/base/mutex.h"
#include "spillway/error.h"

namespace spillway {

bool FaultSwitch::begin_op() {
  using Kind = DeviceFault::Kind;
  const bool due = ops_ >= fault_.after_ops, first = ops_ == fault_.after_ops;
  ++ops_;
  if (due && fault_.kind == Kind::hang) hang();
  if (abandoned_.stop_requested()) throw DeviceLost(device_, "it was abandoned");
  if (due && fault_.kind == Kind::fail) {
    throw DeviceLost(device_, fmt::format("simulated failure after {} ops", fault_.after_ops));
  }
  return first && fault_.kind == Kind::shrink;
}

void FaultSwitch::hang() const {
  Mutex mutex;
  const MutexLock lock(mutex);
  CondVar never;
  never.wait(mutex, abandoned_, [] { return false; });
}

}  // namespace spillway
