#include "core/device/fault_switch.h"

#include <condition_variable>
#include <mutex>

#include "spillway/error.h"

namespace spillway {

bool FaultSwitch::begin_op() {
  using Kind = DeviceFault::Kind;
  const bool due = ops_ >= fault_.after_ops, first = ops_ == fault_.after_ops;
  ++ops_;
  if (due && fault_.kind == Kind::hang) hang();
  if (abandoned_.stop_requested()) throw DeviceLost(device_, "it was given up");
  if (due && fault_.kind == Kind::fail) {
    throw DeviceLost(device_, "made to fail after " + std::to_string(fault_.after_ops) + " ops");
  }
  return first && fault_.kind == Kind::shrink;
}

void FaultSwitch::hang() const {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  never.wait(lock, abandoned_, [] { return false; });
}

}  // namespace spillway
