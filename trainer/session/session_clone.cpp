#include <fmt/format.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include "spillway/error.h"
#include "trainer/config/train_changes.h"
#include "trainer/session/session_impl.h"

/// A trial begins with the state of another one.
namespace spillway {
namespace {

/// Throws ConfigError (`max_steps`).
void lengthen(TrainConfig& train, std::int64_t max_steps) {
  if (max_steps == 0 || max_steps == train.max_steps) return;
  if (max_steps < train.max_steps) {
    throw ConfigError("max_steps", 0,
                      fmt::format("is {}, below the {} of the source, on which its learning rates "
                                  "depend; use until",
                                  max_steps, train.max_steps));
  }
  train.extended_from.push_back(std::exchange(train.max_steps, max_steps));
}

/// Throws ConfigError (`checkpoint.folder`).
void require_folders(const CheckpointConfig& source, const CheckpointConfig& clone,
                     const std::string& name) {
  std::string problem;
  if (source.folder.empty()) {
    problem = fmt::format(
        "of '{}' is empty, and a clone begins from a checkpoint; give '{}' a "
        "folder when you submit it",
        name, name);
  } else if (clone.folder.empty()) {
    problem = "is empty; a clone needs one of its own";
  } else if (clone.folder == source.folder) {
    problem = fmt::format("is that of '{}', '{}'; a clone needs one of its own", name,
                          source.folder.string());
  }
  if (!problem.empty()) throw ConfigError("checkpoint.folder", 0, problem);
}

}  // namespace

TrialConfig Session::Impl::config_of_clone(const SessionTrial& source,
                                           const CloneChanges& changes) const {
  TrialConfig clone = source.config;
  clone.client_id = changes.client_id;
  clone.name = changes.name.empty() ? changes.client_id : changes.name;
  clone.until = changes.until;
  clone.weights_file = changes.weights_file;
  clone.checkpoint.folder = changes.checkpoint_folder;
  require_folders(source.config.checkpoint, clone.checkpoint, source.config.name);
  if (source.lanes.is_auto) clone.train.data_parallel = kAutoDataParallel;
  lengthen(clone.train, changes.max_steps);
  clone.train.changes = source.history.changes();
  return clone;
}

/// On the engine's thread: makes the state after the latest commit durable, and tries again until
/// it is, or the trial has ended. `is_mine`: the checkpoint that is being written has that state.
void Session::Impl::save_for_clone(JobId id, const std::shared_ptr<std::promise<void>>& saved,
                                   bool is_mine) {
  constexpr std::chrono::milliseconds kRetry(5);
  const MutexLock lock(mutex);
  const SessionTrial& source = trial(id);
  const bool is_ending = !source.ended() && !source.lifecycle.is_live();
  if (!is_ending && !source.checkpoints->is_saving()) {
    const bool is_new = source.result.steps > source.first_step && !source.ended();
    if (!is_new || is_mine || source.checkpoints->has_saved(source.history)) {
      return saved->set_value();
    }
    source.checkpoints->save(source.history);
    is_mine = true;
  }
  shell->call_after(kRetry, [this, id, saved, is_mine] { save_for_clone(id, saved, is_mine); });
}

void Session::Impl::save_newest(JobId id) {
  std::future<void> done;
  {
    const MutexLock lock(mutex);
    if (!shell || trial(id).ended()) return;
    const auto saved = std::make_shared<std::promise<void>>();
    done = saved->get_future();
    shell->call([this, id, saved] { save_for_clone(id, saved, false); });
  }
  try {
    done.get();
  } catch (const std::future_error&) {  // the run has ended, and all trials with it
  }
}

JobId Session::clone(JobId id, const CloneChanges& changes) {
  Impl& impl = *impl_;
  require_valid(changes.values, "set.");
  const MutexLock cloning(impl.cloning);
  TrialConfig clone;
  CheckpointConfig from;
  std::string reason;
  {
    const MutexLock lock(impl.mutex);
    const SessionTrial& source = impl.known_trial(id);
    Impl::require_alone(source, "cloned");
    clone = impl.config_of_clone(source, changes);
    from = source.config.checkpoint;
    reason = fmt::format("clone of '{}'", source.config.name);
  }
  clone.validate();  // before anything is written; without the lock, as it makes the model
  if (!clone.client_id.empty()) {
    if (const auto known = impl.find_trial(clone.client_id)) return *known;
    if (impl.store.knows(clone.client_id)) {  // it begins as it began in an earlier session
      clone.train.changes.clear();
      return impl.submit(std::move(clone), reason);
    }
  }
  impl.save_newest(id);
  clone.checkpoint.resume = impl.store.copy_newest(from, clone, changes.values);
  if (!clone.checkpoint.resume && changes.values != TrainValues()) {
    clone.train.changes.push_back({.step = 0, .values = changes.values});
  }
  return impl.submit(std::move(clone), reason);
}

}  // namespace spillway
