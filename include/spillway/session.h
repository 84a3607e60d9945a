#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spillway/contract.h"
#include "spillway/device_config.h"
#include "spillway/events.h"
#include "spillway/ids.h"
#include "spillway/results.h"
#include "spillway/session_config.h"
#include "spillway/session_state.h"
#include "spillway/strategy_search.h"
#include "spillway/trial_config.h"
#include "spillway/trial_plan.h"

namespace at {
class Tensor;
}

/// The public API: submit trials, run them, watch them. Plain values go in and come out, without
/// callbacks into the caller, so other languages and protocols can mirror it.
namespace spillway {

class DataSource;    // spillway/data_source.h
struct NamedTensor;  // spillway/weights.h
class RunLock;       // trainer/storage/run_lock.h

/// Trials on shared devices. Any thread may call any function at any time. Trials and devices are
/// numbered from 0, and a device that has left keeps its number. No bit of a trial depends on when
/// other trials are submitted, wait or end, on devices that join, leave and fail, or on resizes.
/// run() trains the submitted trials and returns; start() keeps a run open, which trains whatever
/// is submitted until finish() or the destructor ends it.
class Session {
 public:
  /// Throws ConfigError (`devices`, `devices[1].memory`, `devices[1].imitate.link`, `offload_path`,
  /// `scheduling.policy`, `scheduling.sharing`, `sweep.early_terminate`).
  explicit Session(SessionConfig config);
  /// Stops the trials that have not ended, as stop() does.
  ~Session();

  /// Keeps a journal of the trials in `folder` (docs/formats.md), which belongs to this session
  /// alone from now on. Call it before run(). All trials then need a client id. A trial that an
  /// earlier session with this journal has ended does not run again: submit() returns its result.
  /// Any other trial of the journal continues from its newest checkpoint. Throws InUse if another
  /// process has the folder; IoError, CorruptData, NewerFormat; ConfigError (`client_id`).
  void keep_journal(const std::filesystem::path& folder);
  /// Like above, in a folder that the caller has locked.
  void keep_journal(RunLock lock);
  /// All trials of the journal, with client ids as names and without lists of losses.
  std::vector<TrialResult> journal() const;

  /// Differences between `trial` and the journal's trial with its client id; with any, submit()
  /// throws. Empty also if the journal has no such trial. Throws ConfigError like submit().
  std::vector<ContractDifference> changes(TrialConfig trial);
  /// Plans a trial: measures its layers and cuts it to fit the budget. Returns the existing trial
  /// if the client id is known. One that has ended trains on, under a new number, if it is
  /// submitted with CheckpointConfig::resume and more steps; if it was stopped early, also with
  /// TrialConfig::exempt_from_early_stopping; early stopping compares it no more. On return the
  /// trial is durable in the journal, if there is one, and takes part in the run, if there is one.
  /// Throws Error if a layer does not run; ConfigError (also `client_id` if it belongs to another
  /// contract, `until`, and `data` if the samples do not fit the model); DoesNotFit with the
  /// smallest budget that would fit, or if the disk of `offload_path` cannot hold the state of all
  /// trials that train at once, or during a run with early stopping like check(). Throws
  /// ConfigError (`sweep.metric.name`) if early stopping compares evaluations and there is no data
  /// for them.
  JobId submit(TrialConfig trial);
  /// With several hosts: host 0 says which trials it will submit, by client id, and the others read
  /// this list, so that they submit the same in the same order. Throw Error if hosts do not answer;
  /// HostLost, as submit() does, if it is host 0.
  void announce_trials(const std::vector<std::string>& client_ids);
  std::vector<std::string> announced_trials() const;  ///< waits for host 0
  /// If hosts meet again, because host 0 was lost or others join, and a host has saved all trials
  /// (HostsConfig::run_folder): how this host goes on with them, in a new session. Known once the
  /// run has ended. After HostLost it is HostsConfig::without_host_0() of this session.
  std::optional<HostsConfig> next_hosts() const;
  /// Throws what submit() would throw for one of these trials, beside those that are there and with
  /// the earlier ones of the list. Submits none.
  void check(std::vector<TrialConfig> trials);
  /// The plan that submit() made.
  const TrialPlan& plan(JobId trial) const;
  /// Throws DoesNotFit if host memory cannot hold the state of all trials that early stopping lets
  /// train at once. run() and simulate() do the same.
  void check() const;

  /// Trains all submitted trials, and those submitted meanwhile, until every trial has ended, is
  /// paused, or waits for a paused one. A trial that fails does not affect the others. Ends the run
  /// if all trials have ended, unless start() opened it. Throws Error if costs are estimates, and
  /// IoError at the end if the journal could not be written. If it throws, the trials that had not
  /// ended are stopped.
  void run();
  /// Begins to train and returns. From now on each trial trains as soon as it is submitted. No
  /// effect during a run that start() began. Throws Error if costs are estimates.
  void start();
  /// Waits until every trial has ended, is paused, or waits for a paused one. Throws what ended the
  /// run.
  void wait();
  /// Waits until this trial has ended, is paused, or waits for a paused one. Returns its state.
  /// Throws what ended the run.
  TrialState wait(JobId trial);
  /// Like wait(), for all trials or for one, but at most for so many seconds. Returns whether the
  /// wait is over.
  bool wait_for(double seconds, std::optional<JobId> trial = std::nullopt);
  /// Waits like wait(), then stops the trials that have not ended, and ends the run. Throws like
  /// run().
  void finish();
  /// Predicts run(): runs the same engine on a virtual clock with the measured costs. Predicts
  /// times, counters and each trial's `steps`; the rest of the trials stays as it is. Early
  /// stopping needs losses, which are unknown: the simulation keeps the trials submitted first.
  /// If the run has more than `most_ops` ops, it simulates some of the steps and scales the totals.
  RunResult simulate(double most_ops = std::numeric_limits<double>::infinity()) const;
  /// Searches for the strategy with which a step of the trial takes least time, when it has all
  /// devices, or SearchConfig::devices of them, for itself. Simulates each strategy like
  /// simulate(); trains nothing. No strategy changes a bit of the trial, which keeps its own:
  /// submit another one with TrainConfig::strategy. Uses all cores. The result is a function of the
  /// measured costs and of `config`. Throws ConfigError (`proposals`, `devices`), and Error for an
  /// unknown trial or during a run.
  SearchResult search(JobId trial, const SearchConfig& config = {}) const;
  /// Ends all trials after their running ops: in this run, or, outside of one, in the next. Where
  /// hosts shard the state of trials (HostsConfig::state), host 0 first saves it after one of the
  /// next steps; a second call does not wait for that.
  void stop();
  /// Ends one trial after its running ops; if other hosts train it, too, all trials, as stop(). Its
  /// state is saved if it has checkpoints. These four functions have no effect on a trial that has
  /// ended, and throw Error for an unknown one.
  void stop(JobId trial);
  /// Pauses a trial after its current step: its state is saved if it has checkpoints, and it keeps
  /// its host memory.
  void pause(JobId trial);
  /// Continues a paused trial.
  void resume(JobId trial);
  /// Moves the step where the trial waits, see TrialConfig::until; `train.max_steps`: it trains to
  /// its end. A waiting trial has evaluated its weights. Throws ConfigError (`until`).
  void extend(JobId trial, std::int64_t until);
  /// Early stopping compares the trial no more, as TrialConfig::exempt_from_early_stopping says: it
  /// goes on at all further rungs, and keeps its place where it went on before. The journal, if
  /// there is one, has that place on return. No effect on a trial that has ended or is being
  /// stopped. Throws Error for an unknown trial.
  void exempt_from_early_stopping(JobId trial);
  /// Changes values of a trial from its next commit on, and returns the number of steps before.
  /// Checkpoints and the journal, if there is one, keep the change: a trial that resumes repeats it
  /// at the same step. Its bits are those of a trial with this entry of TrainConfig::changes. On
  /// return the change is durable in the journal. Throws ConfigError (`set.learning_rate`, ...;
  /// `trial` if it has ended or committed its last step), and Error for an unknown trial.
  std::int64_t set(JobId trial, const TrainValues& values);
  /// Submits a copy of a trial that begins from its newest commit, or, if it has ended, from its
  /// newest checkpoint. Both need folders for checkpoints. The source's state is written to its
  /// folder, then to that of the clone; a source that waits for a device gets one before. The
  /// source's bits stay, and those of the clone are those of the source with these changes. Returns
  /// the existing trial if the client id is known. Throws like submit(); ConfigError
  /// (`checkpoint.folder`, `set.learning_rate`, `max_steps`); Error for an unknown trial.
  JobId clone(JobId trial, const CloneChanges& changes);

  /// The weights of a trial that has ended or is paused, in the order of its parameters. Those of
  /// an ended one come from memory (TrialConfig::keep_weights), else from its weights_file, else
  /// from its newest checkpoint. Throws Error if the trial still trains or left none, and if this
  /// is another host than host 0 and hosts shard the state of a trial in bf16.
  std::vector<NamedTensor> weights(JobId trial) const;
  /// Mean loss and metrics of a trial on all samples of `data`, which are like its own, with its
  /// weights(). Runs as a trial "NAME/evaluation" beside those that train, in this run or a new
  /// one, under the same budgets; no bit depends on them. Waits for the result. Throws ConfigError
  /// (`data`) if the samples do not fit the model, DoesNotFit, and what weights() throws.
  Evaluation evaluate(JobId trial, std::shared_ptr<const DataSource> data);
  /// Likewise of a trial that the session does not have, with these weights by the names of its
  /// parameters. Throws what submit() throws, and Error if a parameter is missing.
  Evaluation evaluate(const TrialConfig& trial, std::vector<NamedTensor> weights,
                      std::shared_ptr<const DataSource> data);
  /// Likewise what the trial's model computes before its loss, for each sample of `data` in order:
  /// [N, ...] f32, on the CPU, outside of host_memory. Of a Graph or Sequential: the first input of
  /// the loss. Of the built-in families: the logits. Targets in the rows are not used.
  at::Tensor predict(JobId trial, std::shared_ptr<const DataSource> data);

  /// Sets the number of devices that compute a step of the trial together, from its next commit on
  /// (fewer if fewer can run it).
  /// Overrides rules and sharing for this trial; the others share the remaining devices, at least
  /// one. No effect on a trial that has ended. Throws ConfigError (`train.data_parallel`) if there
  /// are too few devices now, or if host memory is not reserved for that many.
  void resize(JobId trial, int lanes);
  /// Adds a device and returns its number. It takes part once its memory is warm. Throws
  /// ConfigError (`devices[N].memory`, ...) or OutOfMemory.
  int add_device(const DeviceConfig& device);
  /// Removes a device once the work that is bound to it has ended a step. Without any device,
  /// trials wait until one is added. Throws ConfigError (`devices`) if there is no such device.
  void remove_device(int device);

  /// Events after `sequence`; waits up to `wait_s` seconds for the first. Only the latest
  /// SessionConfig::max_events are kept: if older ones were asked for, the result starts later.
  std::vector<SessionEvent> poll(std::uint64_t sequence, double wait_s) const;
  /// The result so far, complete once a run has ended. Counters, times and trace belong to the
  /// latest run; the trace is there once it has ended.
  RunResult result() const;
  /// The state at this moment. Waits briefly for the engine's thread; changes nothing.
  SessionState state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway
