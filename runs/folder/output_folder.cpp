#include "runs/folder/output_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "core/os/file_system.h"
#include "runs/log/event_log.h"
#include "runs/log/lines.h"
#include "runs/log/tensorboard_file.h"
#include "spillway/error.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/journal/run_journal.h"
#include "trainer/storage/atomic_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".spillway";
constexpr const char* kMarkerText =
    "This folder belongs to a run of spillway train, which may replace it.\n";
/// The name of try_to_write()'s probe; mkdtemp replaces the X's.
constexpr std::string_view kProbe = ".spillway-XXXXXX";

/// Removes a file or a whole folder, if it is there.
void delete_all(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw IoError("cannot remove", path, error.value());
}

/// Keeps a folder that contains other files.
void remove_if_empty(const fs::path& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error) && fs::is_empty(folder, error)) fs::remove(folder, error);
}

void remove_generations(const fs::path& checkpoints) {
  std::error_code error;
  if (!fs::is_directory(checkpoints, error)) return;
  CheckpointStore unfinished(posix_file_system(), checkpoints);  // removes what a crash left
  for (const auto number : unfinished.generations())
    delete_all(generation_path(checkpoints, number));
}

/// Leaves room for the files of trials.
bool is_too_long(const fs::path& path) {
  constexpr std::size_t kInside = 256;
  return path.native().size() + kInside > PATH_MAX ||
         std::ranges::any_of(path, [](const auto& p) { return p.native().size() > NAME_MAX; });
}

/// Creates a folder inside `folder` and removes it: on /proc or a full disk, permissions alone do
/// not show that writing fails. Returns errno.
int try_to_write(const fs::path& folder) {
  std::string probe = (folder / kProbe).string();
  if (::mkdtemp(probe.data()) == nullptr) return errno;
  return ::rmdir(probe.c_str()) == 0 ? 0 : errno;
}

bool is_regular(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(path, error));
}

bool has_marker(const fs::path& folder) {
  if (!is_regular(folder / kMarker)) return false;
  std::ifstream file(folder / kMarker, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {}) == kMarkerText;
}

/// Whether a process that is killed while it creates a run's folder may leave this name.
bool is_leftover(const std::string& name) {
  const bool is_probe = name.size() == kProbe.size() && name.starts_with(".spillway-");
  return is_probe || name == std::string(kMarker) + ".tmp" || name == "lock";
}

bool has_only_leftovers(const fs::path& folder) {
  std::error_code error;
  return std::ranges::all_of(fs::directory_iterator(folder, error), [](const auto& entry) {
    return is_leftover(entry.path().filename().string());
  });
}

bool has_files(const fs::path& folder) {
  std::error_code error;
  for (fs::recursive_directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    if (!file->is_directory(error)) return true;
  }
  return false;
}

/// Whether the folder holds anything that must not be lost.
bool has_begun(const fs::path& folder) {
  if (is_regular(folder / kJournalFile) || has_files(folder / "trials")) return true;
  if (!is_regular(folder / kEventFile)) return false;
  std::ifstream file(folder / kEventFile, std::ios::binary);
  std::string line;
  return read_line(file, line);
}

/// A log that others have written may have names that lead out of the folder.
bool is_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && fs::path(name).filename() == name;
}

std::vector<std::string> trials_of_log(const fs::path& folder) {
  std::vector<std::string> names;
  try {
    for (const TrialLog& trial : read_log(folder).run.trials) {
      if (is_file_name(trial.result.name)) names.push_back(trial.result.name);
    }
  } catch (const Error&) {
    // Without the log the run's files are unknown, so they stay.
  }
  return names;
}

/// Why nothing can be written to `path`; empty if it can.
std::string problem_of_place(const fs::path& path) {
  if (is_too_long(path)) return "is too long a path; choose a shorter one";
  std::error_code error;
  const auto there = existing_part(path);
  const bool is_link = fs::is_symlink(fs::symlink_status(there, error));
  if (is_link && !fs::exists(there, error))
    return fmt::format(
        "'{}' cannot be a folder: {} is a broken symbolic link; create its target, "
        "or choose another folder",
        path.string(), there.string());
  if (!fs::is_directory(there, error))
    return fmt::format("'{}' cannot be a folder: {} is a file; choose another", path.string(),
                       there.string());
  if (const int code = try_to_write(there); code != 0)
    return fmt::format("'{}' cannot be written: {}: {}; choose another", path.string(),
                       there.string(), std::generic_category().message(code));
  return "";
}

fs::path without_parents(const fs::path& path) {
  const bool has_parent = std::ranges::any_of(path, [](const auto& part) { return part == ".."; });
  std::error_code error;
  const fs::path resolved = has_parent ? fs::weakly_canonical(path, error) : path;
  return error ? path : resolved;
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& path) : path_(without_parents(path)) {}

OutputFolder::Content OutputFolder::content() const {
  std::error_code error;
  if (!fs::exists(path_, error) || fs::is_empty(path_, error)) return Content::nothing;
  if (has_marker(path_)) return has_begun(path_) ? Content::run : Content::leftovers;
  return has_only_leftovers(path_) ? Content::leftovers : Content::others;
}

std::string OutputFolder::problem(bool overwrite) const {
  if (auto problem = problem_of_place(path_); !problem.empty()) return problem;
  const Content found = content();
  if (found == Content::others)
    return fmt::format(
        "'{}' holds files that were not written by a run (it has no .spillway file "
        "of a run), so it is not overwritten; choose another",
        path_.string());
  if (found == Content::run && !overwrite)
    return fmt::format(
        "'{}' holds an earlier run; add --overwrite to replace it, continue it with "
        "'spillway resume', or choose another",
        path_.string());
  return "";
}

void OutputFolder::require_free() const {
  if (const auto holder = holder_of(path_)) throw InUse(path_, *holder);
}

RunLock OutputFolder::lock() const {
  make_folders(path_);
  return RunLock(path_);
}

/// Removes the files that identify the run first.
void OutputFolder::remove_earlier_run(std::vector<std::string> trials) const {
  const auto of_log = trials_of_log(path_);
  trials.insert(trials.end(), of_log.begin(), of_log.end());
  for (const char* output :
       {kEventFile, kJournalFile, "journal.sqlite-wal", "journal.sqlite-shm", "results.csv",
        "plan.json", "config.yaml", "trace.json", kReportFile, "requests"})
    delete_all(path_ / output);
  for (const std::string& name : trials) {
    delete_all(weights_file(name));
    delete_all(trial(name) / "metrics.csv");
    remove_tensorboard_files(trial(name));
    remove_generations(checkpoints(name));
    remove_if_empty(checkpoints(name));
    remove_if_empty(trial(name));
  }
  remove_if_empty(path_ / "trials");
}

void OutputFolder::create(const std::vector<std::string>& trials) const {
  write(kMarker, kMarkerText);
  remove_earlier_run(trials);
  add_trials(trials);
}

void OutputFolder::add_trials(const std::vector<std::string>& trials) const {
  for (const auto& name : trials) make_folders(trial(name));
}

Bytes OutputFolder::free_bytes() const {
  return posix_file_system().free_bytes(existing_part(path_));
}

fs::path OutputFolder::weights_file(const std::string& name) const {
  return trial(name) / "weights.safetensors";
}

fs::path OutputFolder::checkpoints(const std::string& name) const {
  return trial(name) / "checkpoints";
}

void OutputFolder::write(const std::string& name, const std::string& text) const {
  AtomicFile out(path_ / name);
  out.write(text);
  out.commit();
}

}  // namespace spillway
