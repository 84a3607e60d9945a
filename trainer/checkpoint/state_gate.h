#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/mutex.h"

namespace spillway {

/// Lets a snapshot read the state of a trial after one step, while the trial continues, without a
/// second copy: it reads a parameter and its moments after that step's update of them, and the next
/// update of them waits until they are read. One snapshot at a time. Thread-safe.
class StateGate {
 public:
  /// All parameters are in the state after `first_step` steps.
  StateGate(std::size_t num_params, std::int64_t first_step);

  // The trial:

  /// Call before an update of the parameter. Waits until a snapshot has read it.
  void begin_update(std::size_t param);
  /// Call after the update of the parameter.
  void end_update(std::size_t param);
  std::int64_t version(std::size_t param) const;
  std::size_t num_params() const { return num_params_; }
  /// Whether a snapshot of a state before that after `step` steps is open: updates may wait for it.
  bool is_read_before(std::int64_t step) const;

  // The snapshot:

  /// Starts a snapshot of the state after `step` steps: no parameter is updated beyond it before
  /// release(). Call before the next step commits. Calls `ready` once, on this thread or one of the
  /// trial, when every parameter has reached the step, or cancel() was called: reading then waits
  /// for nothing.
  void begin_snapshot(std::int64_t step, std::function<void()> ready = {});
  /// Waits until the parameter has reached the snapshot's step. False if it never will because
  /// cancel() was called.
  bool wait_for(std::size_t param);
  /// Call after reading the parameter.
  void release(std::size_t param);
  /// Ends the snapshot.
  void end_snapshot();
  /// The trial has ended. Wakes all waiting threads.
  void cancel();

 private:
  struct Param {
    std::int64_t version = 0;
    bool is_wanted = false;  ///< by the snapshot
  };
  const std::size_t num_params_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Param> params_ SPILLWAY_GUARDED_BY(mutex_);
  std::int64_t snapshot_ SPILLWAY_GUARDED_BY(mutex_) = -1;  ///< its step; -1: none
  /// Number of parameters that have not reached it.
  std::size_t num_behind_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::function<void()> ready_ SPILLWAY_GUARDED_BY(mutex_);
  bool cancelled_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway
