#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/mutex.h"

namespace spillway {

/// Lets a snapshot read the state after one step of a trial while the trial trains on, without a
/// second copy: a parameter and its moments are read once that step's update of them is done, and
/// the next update of them waits until they were read. One snapshot at a time. Thread-safe.
class StateGate {
 public:
  /// All parameters are as after `first_step` steps.
  StateGate(std::size_t num_params, std::int64_t first_step);

  // The trial:

  /// Before an update of the parameter: waits for a snapshot that has still to read it.
  void begin_update(std::size_t param);
  /// The parameter is as after one more step.
  void end_update(std::size_t param);
  std::int64_t version(std::size_t param) const;

  // The snapshot:

  /// Of the state after `step` steps: no parameter goes beyond it before release(). Before the
  /// commit of the step behind it. Calls `ready` once, on any thread of the trial or on this one,
  /// when no parameter is behind the step any more, or none will come on: who reads then waits for
  /// nothing.
  void begin_snapshot(std::int64_t step, std::function<void()> ready = {});
  /// Waits until the parameter has reached the snapshot's step. False where it never will, because
  /// cancel() was called.
  bool wait_for(std::size_t param);
  /// The parameter has been read.
  void release(std::size_t param);
  /// All has been read, or need not be any more.
  void end_snapshot();
  /// The trial has ended: whoever waits goes on.
  void cancel();

 private:
  struct Param {
    std::int64_t version = 0;
    bool is_wanted = false;  ///< by the snapshot
  };
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Param> params_ SPILLWAY_GUARDED_BY(mutex_);
  std::int64_t snapshot_ SPILLWAY_GUARDED_BY(mutex_) = -1;  ///< its step; -1: none
  /// Parameters that have not come to it.
  std::size_t num_behind_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::function<void()> ready_ SPILLWAY_GUARDED_BY(mutex_);
  bool cancelled_ SPILLWAY_GUARDED_BY(mutex_) = false;
};

}  // namespace spillway
