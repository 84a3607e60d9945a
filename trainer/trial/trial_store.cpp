#include "trainer/trial/trial_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <filesystem>
#include <future>
#include <optional>
#include <system_error>

#include "core/os/file_system.h"
#include "spillway/error.h"
#include "trainer/config/train_changes.h"
#include "trainer/trial/journal_row.h"
#include "trainer/trial/trial_contract.h"

namespace spillway {
namespace {

void require_none(const std::string& client_id, const std::vector<ContractDifference>& different) {
  if (different.empty()) return;
  throw ConfigError("client_id", 0,
                    fmt::format("'{}' was submitted before with another contract:{}, or submit it "
                                "under another id",
                                client_id, explain(different)));
}

/// Copies the generation, as one of this trial.
GenerationContent content_of(const Generation& from, const TrialConfig& trial) {
  const Manifest& manifest = from.manifest();
  GenerationContent content{.job = trial.name,
                            .step = manifest.step,
                            .build = manifest.build,
                            .contract = manifest.contract,
                            .files = {}};
  set_changes(content.contract, trial.train.changes);
  for (const ManifestFile& file : manifest.files) {
    content.files.push_back(
        {.name = file.name, .bytes = file.bytes, .fill = from.file(file.name).read});
  }
  return content;
}

/// The size of all files below a folder; 0 if there is no such folder.
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

TrialStore::TrialStore(const SessionConfig& config, std::string device_kind, Report report)
    : config_(config), device_kind_(std::move(device_kind)), report_(std::move(report)) {}

std::string TrialStore::xxh3_of_data(const SessionTrial& trial) {
  const DataKey key{trial.config.data, trial.model->spec.indices};
  {
    const MutexLock lock(mutex_);
    const auto known = data_xxh3_.find(key);
    if (known != data_xxh3_.end()) return known->second;
  }
  std::string hash = xxh3_of(*trial.config.data, trial.model->spec);
  const MutexLock lock(mutex_);
  return data_xxh3_[key] = std::move(hash);
}

const Contract& TrialStore::contract(SessionTrial& trial) {
  if (!trial.contract.empty()) return trial.contract;
  trial.contract = contract_of(trial.config, trial.model->spec, xxh3_of_data(trial), device_kind_);
  if (const auto& early = config_.early_terminate) {
    trial.contract["sweep.early_terminate"] = contract_text(*early);
  }
  return trial.contract;
}

void TrialStore::require_same_contract(SessionTrial& known, SessionTrial& trial) {
  take_over(trial, contract(known));
  require_none(trial.config.client_id, differences(contract(known), contract(trial)));
}

void TrialStore::take_over(SessionTrial& trial, const Contract& then) {
  std::vector<TrainChange>& changes = trial.config.train.changes;
  std::vector<TrainChange> made = changes_in(then);
  if (!begins_with(made, changes)) return;
  changes = std::move(made);
  if (!trial.contract.empty()) set_changes(trial.contract, changes);
}

RunJournal* TrialStore::journal() const {
  const MutexLock lock(mutex_);
  return journal_.get();
}

void TrialStore::keep_journal(RunLock lock) {
  auto journal = std::make_unique<RunJournal>(std::move(lock), writer_);
  const MutexLock journal_lock(mutex_);
  journal_ = std::move(journal);
}

void TrialStore::end_in_order() const {
  if (const RunJournal* const file = journal()) file->end_in_order();
}

void TrialStore::keep_mark() const {
  if (RunJournal* const file = journal()) file->keep_mark();
}

void TrialStore::take_over_changes(SessionTrial& trial) const {
  RunJournal* const file = journal();
  const auto known = file ? file->find(trial.config.client_id) : std::nullopt;
  if (known) take_over(trial, contract_in(*known));
}

std::vector<ContractDifference> TrialStore::changes(SessionTrial& trial) {
  RunJournal* const file = journal();
  const auto known = file ? file->find(trial.config.client_id) : std::nullopt;
  if (!known) return {};
  const Contract then = contract_in(*known);
  take_over(trial, then);
  return changes_since(then, contract(trial));
}

bool TrialStore::knows(const std::string& client_id) const {
  RunJournal* const file = journal();
  return file && file->find(client_id);
}

void TrialStore::recall(SessionTrial& trial) {
  RunJournal* const file = journal();
  const auto known = file ? file->find(trial.config.client_id) : std::nullopt;
  if (!known) return;
  require_none(known->client_id, changes(trial));
  trial.config.checkpoint.resume = true;
  const TrialState state = state_of(*known);
  const bool is_longer =
      state == TrialState::done && result_of(*known).steps < trial.config.train.max_steps;
  const bool is_exempt =
      state == TrialState::stopped_early && trial.config.exempt_from_early_stopping;
  if (!is_final(state) || is_longer || is_exempt) return;
  trial.lifecycle.recall(state);
  trial.result = result_of(*known);
  trial.result.name = trial.config.name;
}

void TrialStore::recall_rungs(SessionTrial& trial) const {
  RunJournal* const file = journal();
  const auto known = file ? file->find(trial.config.client_id) : std::nullopt;
  if (known) trial.result.rung_losses = result_of(*known).rung_losses;
}

void TrialStore::submit(SessionTrial& trial) {
  RunJournal* const file = journal();
  if (!file) return;
  const std::string& client_id = trial.config.client_id;
  Contract now = contract(trial);
  set_changes(now, trial.history.changes());
  const auto known = file->find(client_id);
  if (!known) return file->submit(client_id, contract_text(now));
  // It keeps the contract as it was submitted first, with the changes that a checkpoint has.
  Contract then = contract_in(*known);
  const auto before = changes_in(then);
  if (begins_with(trial.history.changes(), before)) set_changes(then, trial.history.changes());
  require_none(client_id, changes_since(then, now));
  if (changes_in(then) != before) file->set_config(client_id, contract_text(then));
}

void TrialStore::record_changes(const std::string& client_id,
                                const std::vector<TrainChange>& changes) {
  RunJournal* const file = journal();
  const auto known = file ? file->find(client_id) : std::nullopt;
  if (!known) return;
  Contract contract = contract_in(*known);
  set_changes(contract, changes);
  file->set_config(client_id, contract_text(contract));
}

void TrialStore::record_state(const SessionTrial& trial) {
  RunJournal* const file = journal();
  if (!file) return;
  const TrialResult& result = trial.result;
  const bool has_place = trial.ended() || trial.config.exempt_from_early_stopping;  // at rungs
  file->note([id = trial.config.client_id, state = result.state, reason = result.reason,
              text = has_place ? result_text(result) : ""](Journal& journal) {
    if (!text.empty()) journal.set_result(id, text);
    journal.set_state(id, to_string(state), reason);
  });
}

std::vector<TrialResult> TrialStore::results() const {
  std::vector<TrialResult> results;
  RunJournal* const file = journal();
  if (!file) return results;
  for (const JournalTrial& trial : file->trials()) results.push_back(result_of(trial));
  return results;
}

void TrialStore::flush() {
  if (RunJournal* const file = journal()) file->flush();
}

TrialCheckpoints::Newest TrialStore::open_checkpoints(JobId id, SessionTrial& trial) {
  const CheckpointConfig& checkpoint = trial.config.checkpoint;
  if (checkpoint.folder.empty()) return {};
  trial.checkpoints = std::make_unique<TrialCheckpoints>(
      checkpoint, trial.config.name, contract(trial), posix_file_system(), writer_,
      [this, client_id = trial.config.client_id](std::uint64_t generation, std::int64_t step) {
        RunJournal* const file = journal();
        if (!file) return;
        file->add([=](Journal& journal) {
          journal.committed(client_id, generation, static_cast<std::uint64_t>(step));
        });
      },
      [this, id](const TrialCheckpoints::Saved& saved) { report_(id, saved); });
  if (!checkpoint.resume) return {};
  auto newest = trial.checkpoints->open_newest();
  if (newest.generation) {
    trial.first_step = static_cast<std::int64_t>(newest.generation->manifest().step);
    take_over(trial, newest.generation->manifest().contract);
  }
  return newest;
}

/// On the thread that writes all checkpoints: none is removed meanwhile.
bool TrialStore::copy_newest(const CheckpointConfig& from, TrialConfig& clone,
                             const TrainValues& values) {
  std::packaged_task<bool()> task([&] {
    if (!std::filesystem::exists(from.folder)) return false;
    FileSystem& files = posix_file_system();
    CheckpointStore source(files, from.folder, {.keep = from.keep});
    const auto newest = source.open_newest().generation;
    if (!newest) return false;
    const Manifest& manifest = newest->manifest();
    const auto made = changes_in(manifest.contract);
    if (!begins_with(clone.train.changes, made)) clone.train.changes = made;
    if (values != TrainValues()) {
      clone.train.changes.push_back({static_cast<std::int64_t>(manifest.step), values});
    }
    make_folders(clone.checkpoint.folder);
    CheckpointStore(files, clone.checkpoint.folder, {.keep = clone.checkpoint.keep})
        .write(content_of(*newest, clone));
    return true;
  });
  auto copied = task.get_future();
  boost::asio::post(writer_, std::move(task));
  return copied.get();
}

void TrialStore::require_room(SessionTrial& trial, Bytes reserved, Bytes homes) {
  if (!trial.checkpoints) return;
  const CheckpointConfig& checkpoint = trial.config.checkpoint;
  const Bytes most = trial.planned.summary.checkpoint_bytes;
  trial.checkpoint_growth = most - std::min(most, bytes_in(checkpoint.folder));
  const Bytes needed = trial.checkpoint_growth + reserved + homes;
  const auto folder = existing_part(checkpoint.folder);
  const Bytes available = posix_file_system().free_bytes(folder);
  if (needed <= available) return;
  const std::string fewer = fmt::format("or lower checkpoint.keep, which is {}", checkpoint.keep);
  throw DoesNotFit(fmt::format("the total of checkpoints{} in '{}'",
                               homes > 0 ? " and offloaded training state" : "", folder.string()),
                   Tier::disk, needed, available, checkpoint.keep > 1 ? fewer : "");
}

}  // namespace spillway
