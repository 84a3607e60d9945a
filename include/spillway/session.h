#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <vector>

#include "spillway/contract.h"
#include "spillway/device_config.h"
#include "spillway/events.h"
#include "spillway/ids.h"
#include "spillway/results.h"
#include "spillway/session_config.h"
#include "spillway/session_state.h"
#include "spillway/trial_config.h"
#include "spillway/trial_plan.h"

/// The public API: submit trials, run them, watch them. Plain values in and out, no callbacks
/// into the caller, so other languages and protocols can mirror it.
namespace spillway {

class RunLock;  // trainer/storage/run_lock.h

/// Trials on shared devices. One thread calls submit() and run(), as often as it likes: each run()
/// trains what was submitted before it and has not ended; resize, add_device, remove_device, poll,
/// stop, result and state may come from any thread. Trials, and devices, are numbered from 0; one
/// that has left keeps its number. Devices that come, go and fail, and resizes, change no bit of a
/// result.
class Session {
 public:
  /// Throws ConfigError (`devices`, `devices[1].memory`, `devices[1].link`, `home_path`,
  /// `scheduling.policy`, `scheduling.sharing`, `sweep.early_terminate`).
  explicit Session(SessionConfig config);
  ~Session();

  /// From now on the folder, this session's alone, has a journal of the trials (docs/formats.md),
  /// and all that are submitted must have a client's id. A trial that earlier sessions with this
  /// journal have ended is not run again: submit() gives it their result. One that they have not
  /// ended goes on from its newest checkpoint. Before run(). Throws InUse where another process has
  /// the folder; IoError, CorruptData, NewerFormat; ConfigError (`client_id`).
  void keep_journal(const std::filesystem::path& folder);
  /// As above, in a folder that the caller has locked already.
  void keep_journal(RunLock lock);
  /// What it says of all its trials, by their ids as names, without the lists of losses.
  std::vector<TrialResult> journal() const;

  /// What of a trial is otherwise than the journal has it, by its client's id: no such trial can be
  /// submitted. Empty also where the journal does not know it. Throws ConfigError as submit().
  std::vector<ContractDifference> changes(TrialConfig trial);
  /// Plans a trial: measures its layers and cuts it under the budget. With a client's id that is
  /// known already, it returns that trial. Once it returns, a journal has the trial for good.
  /// Throws Error while run() runs, ConfigError (also `client_id`, where it stands for another
  /// contract, and `data`, where the samples are not what the model takes), DoesNotFit with the
  /// smallest budget that would do, or where the disk of `home_path` has no room for the homes that
  /// may lie there at once, or Error where a layer does not run.
  JobId submit(TrialConfig trial);
  const TrialPlan& plan(JobId trial) const;
  /// Throws DoesNotFit where early stopping needs more host memory than there is, for the homes of
  /// all trials. So do run() and simulate().
  void check() const;

  /// Trains every submitted trial that has not ended to its end. A trial that fails does so alone.
  /// Throws Error where costs are estimates, and IoError at the end where the journal could not be
  /// written. Where it throws, trials that had not ended are stopped.
  void run();
  /// What run() would do: the same engine on a virtual clock, with the pilot's costs. Times,
  /// counters and each trial's `steps` are predicted; else trials are as they are. Losses to come
  /// are not known: where early stopping compares trials, those submitted first are the better
  /// ones.
  /// Where the run has more than `most_ops` ops, some of its steps are simulated, and times, bytes
  /// and counts of the whole follow from them.
  RunResult simulate(double most_ops = std::numeric_limits<double>::infinity()) const;
  /// Ends all trials after their running ops: those of this run(), or, between two, of the next.
  void stop();

  /// From its next commit on the trial computes with so many lanes, fewer while there are fewer
  /// devices that can run it. No effect once it has ended. Throws ConfigError (`train.lanes`) where
  /// there are too few devices now, or host memory is not reserved for so many. This is the last
  /// word: from now on no rule of the trial counts, it takes no part in sharing, and shares are of
  /// the devices that are left, at least one.
  void resize(JobId trial, int lanes);
  /// Adds a device and returns its number. It takes part once it is warm. Throws ConfigError
  /// (`devices[N].memory`, ...) or OutOfMemory.
  int add_device(const DeviceConfig& device);
  /// The device leaves once what is bound to it has ended a step. Without any, trials wait until
  /// one is added. Throws ConfigError (`devices`) for one that is not there.
  void remove_device(int device);

  /// Events after `sequence`, waiting up to `wait_s` for the first. Of more than
  /// SessionConfig::max_events the oldest are gone: the first sequence is then not the next one.
  std::vector<SessionEvent> poll(std::uint64_t sequence, double wait_s) const;
  /// Up to now, or whole once run() has returned. Counters, times and trace are those of the latest
  /// run().
  RunResult result() const;
  /// At this moment. Waits until the thread that runs run() can answer, a moment; changes nothing.
  SessionState state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
