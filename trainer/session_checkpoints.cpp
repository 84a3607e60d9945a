#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/file_system.h"
#include "trainer/session_impl.h"
#include "trainer/trial_contract.h"

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
  TrialHistory history = read_history(generation);
  TrialResult& result = trial.result;
  result.steps = trial.first_step;
  result.losses = std::move(history.losses);
  result.gradient_norms = std::move(history.gradient_norms);
  result.eval_losses = std::move(history.eval_losses);
  sum_up(result);
  trial.job->start_from(std::move(generation));
}

void Session::Impl::tell_resumed(JobId id, const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    add_event(id, SessionEvent::Kind::damaged).reason = finding.problem;
  }
  add_event(id, SessionEvent::Kind::resumed);
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
  throw DoesNotFit("checkpoints in '" + folder.string() + "'", Tier::disk, needed, available);
}

TrialHistory Session::Impl::history(const SessionTrial& trial) const {
  TrialHistory history{.step = trial.result.steps,
                       .losses = trial.result.losses,
                       .gradient_norms = trial.result.gradient_norms};
  for (const auto& eval : trial.result.eval_losses) {
    if (eval.first < history.step) history.eval_losses.push_back(eval);
  }
  return history;
}

/// Not of one that waits: it would be read after its next updates, and keep the writer until then.
void Session::Impl::save_if_due(SessionTrial& trial) {
  if (trial.paused || trial.at_rung) return;
  if (!trial.checkpoints || !trial.checkpoints->is_due(trial.result.steps)) return;
  trial.checkpoints->save(history(trial));
}

/// Nothing of the trial runs, but who calls.
void Session::Impl::save_last(JobId id) {
  SessionTrial& trial = *trials[id.index()];
  if (!trial.checkpoints || trial.result.steps == trial.first_step) return;
  std::unique_lock lock(mutex);
  TrialHistory last = history(trial);
  lock.unlock();
  trial.checkpoints->save_last(std::move(last));
}

void Session::Impl::report(JobId id, const TrialCheckpoints::Saved& saved) {
  const std::lock_guard lock(mutex);
  SessionEvent& event = add_event(id, SessionEvent::Kind::saved);
  event.step = saved.step;
  event.generation = saved.generation;
  event.reason = saved.problem;
  for (const Finding& finding : saved.findings) {
    add_event(id, SessionEvent::Kind::damaged).reason = finding.problem;
  }
}

}  // namespace spillway
