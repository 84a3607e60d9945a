#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/os/file_system.h"
#include "spillway/error.h"
#include "trainer/session/session_impl.h"
#include "trainer/session/trial_contract.h"

namespace spillway {
namespace {

/// Of the files in a folder and below; of one that is not there, none.
Bytes bytes_in(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  Bytes bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    const bool is_file = file->is_regular_file(error);
    const auto size = is_file ? file->file_size(error) : 0;
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace

std::string Session::Impl::xxh3_of_data(const SessionTrial& trial) {
  const auto& data = trial.config.data;
  std::string& known = data_xxh3[{data, trial.model->spec.indices}];
  if (known.empty()) known = xxh3_of(*data, trial.model->spec);
  return known;
}

/// Of a trial that comes. What it goes on from; nothing: from the beginning.
TrialCheckpoints::Newest Session::Impl::open_checkpoints(JobId id, SessionTrial& trial) {
  const CheckpointConfig& checkpoint = trial.config.checkpoint;
  if (checkpoint.folder.empty()) return {};
  trial.checkpoints = std::make_unique<TrialCheckpoints>(
      checkpoint, trial.config.name, contract(trial), posix_file_system(), writer,
      [this, client_id = trial.config.client_id](std::uint64_t generation, std::int64_t step) {
        if (!journal) return;
        journal->add([=](Journal& file) {
          file.committed(client_id, generation, static_cast<std::uint64_t>(step));
        });
      },
      [this, id](const TrialCheckpoints::Saved& saved) { report(id, saved); });
  if (!checkpoint.resume) return {};
  auto newest = trial.checkpoints->open_newest();
  if (newest.generation) {
    trial.first_step = static_cast<std::int64_t>(newest.generation->manifest().step);
  }
  return newest;
}

void Session::Impl::continue_from(SessionTrial& trial, Generation generation) const {
  trial.history = read_history(generation, config.max_history, rungs());
  trial.result.steps = trial.first_step;
  sum_up(trial);
  trial.job->start_from(std::move(generation));
}

void Session::Impl::tell_damage(JobId id, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    SessionEvent event = event_of(id, SessionEvent::Kind::damaged);
    event.reason = finding.problem;
    events.add(std::move(event));
  }
}

/// Beside those of the trials, all of which keep theirs. What lies there already has its room.
void Session::Impl::require_room_for_checkpoints(SessionTrial& trial) const {
  if (!trial.checkpoints) return;
  const Bytes most = trial.planned.summary.checkpoint_bytes;
  trial.checkpoint_growth = most - std::min(most, bytes_in(trial.config.checkpoint.folder));
  Bytes needed = trial.checkpoint_growth;
  for (const auto& other : trials) needed += other->checkpoint_growth;
  const auto folder = existing_part(trial.config.checkpoint.folder);
  const Bytes available = posix_file_system().free_bytes(folder);
  if (needed <= available) return;
  const int keep = trial.config.checkpoint.keep;
  const std::string fewer = "or lower checkpoint.keep, which is " + std::to_string(keep);
  throw DoesNotFit("what checkpoints take in '" + folder.string() + "'", Tier::disk, needed,
                   available, keep > 1 ? fewer : "");
}

/// Not of one that waits: it would be read after its next updates, and keep the writer until then.
void Session::Impl::save_if_due(JobId id) {
  SessionTrial& trial = *trials[id.index()];
  if (trial.releasing || controller->waits(id) != JobWait::nothing) return;
  if (!trial.checkpoints || !trial.checkpoints->is_due(trial.result.steps)) return;
  trial.checkpoints->save(trial.history);
}

/// Nothing of the trial runs, but who calls.
void Session::Impl::save_last(JobId id) {
  SessionTrial& trial = *trials[id.index()];
  if (!trial.checkpoints || trial.result.steps == trial.first_step) return;
  std::unique_lock lock(mutex);
  TrialHistory last = trial.history;
  lock.unlock();
  trial.checkpoints->save_last(std::move(last));
}

void Session::Impl::report(JobId id, const TrialCheckpoints::Saved& saved) {
  const std::lock_guard lock(mutex);
  SessionEvent event = event_of(id, SessionEvent::Kind::saved);
  event.step = saved.step;
  event.generation = saved.generation;
  event.reason = saved.problem;
  events.add(std::move(event));
  tell_damage(id, saved.findings);
}

}  // namespace spillway
