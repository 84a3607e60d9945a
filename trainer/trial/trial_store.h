#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "spillway/session_config.h"
#include "trainer/journal/run_journal.h"
#include "trainer/trial/session_trial.h"

namespace spillway {

/// The part of trials that outlives a session: their checkpoints, and the journal if there is one.
/// One thread writes both. Any thread may call; without a journal its functions do nothing.
class TrialStore {
 public:
  /// Runs on the writer's thread.
  using Report = std::function<void(JobId, const TrialCheckpoints::Saved&)>;

  /// `device_kind`: see contract_of(). The configuration outlives the store.
  TrialStore(const SessionConfig& config, std::string device_kind, Report report);

  /// Computes it on the first call.
  const Contract& contract(SessionTrial& trial);
  /// Throws ConfigError (`client_id`) unless both trials have the same contract.
  void require_same_contract(SessionTrial& known, SessionTrial& trial);

  /// Throws what RunJournal's constructor throws.
  void keep_journal(RunLock lock);
  bool has_journal() const { return journal() != nullptr; }
  /// No other process goes on with the run if this one is killed from now on.
  void end_in_order() const;
  /// RunLock::keep_mark(), of the journal's folder.
  void keep_mark() const;
  /// The trial repeats the changes of values that a contract of it has, unless it has others from
  /// the start.
  static void take_over(SessionTrial& trial, const Contract& then);
  /// The trial repeats the changes of values that earlier sessions made, as far as the journal has
  /// them.
  void take_over_changes(SessionTrial& trial) const;
  /// Differences from the trial's contract in the journal, which take_over_changes() does not
  /// remove; empty if the journal does not have it.
  std::vector<ContractDifference> changes(SessionTrial& trial);
  /// Whether the journal has this trial.
  bool knows(const std::string& client_id) const;
  /// Takes over what earlier sessions did with the trial: it resumes, or it has ended.
  void recall(SessionTrial& trial);
  /// Takes over the losses by which a trial that is exempt now was compared in earlier sessions.
  void recall_rungs(SessionTrial& trial) const;
  /// Returns once the trial is durable in the journal. Throws ConfigError (`client_id`).
  void submit(SessionTrial& trial);
  void record_state(const SessionTrial& trial);
  /// Returns once the changes of a trial's values are durable in the journal.
  void record_changes(const std::string& client_id, const std::vector<TrainChange>& changes);
  /// All trials of the journal, in order of submission.
  std::vector<TrialResult> results() const;
  void flush();

  /// Gives the trial its checkpoints, if it is to have some. Returns the generation from which it
  /// resumes, if any.
  TrialCheckpoints::Newest open_checkpoints(JobId id, SessionTrial& trial);
  /// Copies the newest checkpoint of a trial to the folder of its clone, whose values are other
  /// ones from there on. It takes over changes that the clone does not know. False if there is
  /// none. Throws CorruptData.
  bool copy_newest(const CheckpointConfig& from, TrialConfig& clone, const TrainValues& values);
  /// Throws DoesNotFit if the disk has no room for the trial's checkpoints beside `reserved` bytes
  /// for those of other trials and `homes` bytes for homes.
  static void require_room(SessionTrial& trial, Bytes reserved, Bytes homes);

  /// Runs `work` on the writer's thread.
  void on_writer(std::function<void()> work) { boost::asio::post(writer_, std::move(work)); }

 private:
  using DataKey = std::pair<std::shared_ptr<const DataSplit>, std::vector<IndexRange>>;

  RunJournal* journal() const;
  std::string xxh3_of_data(const SessionTrial& trial);

  const SessionConfig& config_;
  const std::string device_kind_;
  const Report report_;
  mutable Mutex mutex_;
  std::unique_ptr<RunJournal> journal_ SPILLWAY_GUARDED_BY(mutex_);
  /// Hashes by data and by the index ranges against which its samples were checked.
  std::map<DataKey, std::string> data_xxh3_ SPILLWAY_GUARDED_BY(mutex_);
  boost::asio::thread_pool writer_{1};  // last, so that its thread ends first
};

}  // namespace spillway
