#include "apps/output_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <system_error>

#include "apps/event_log.h"
#include "core/error.h"
#include "core/file_system.h"
#include "trainer/atomic_file.h"
#include "trainer/run_journal.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".spillway";

void delete_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw IoError("cannot remove", path, error.value());
}

/// With room for the files of trials.
bool is_too_long(const fs::path& path) {
  constexpr std::size_t kInside = 256;
  return path.native().size() + kInside > PATH_MAX ||
         std::ranges::any_of(path, [](const auto& p) { return p.native().size() > NAME_MAX; });
}

/// Makes a folder inside `folder` and removes it: permissions alone say little, of /proc or of a
/// disk that is full. Returns errno.
int try_to_write(const fs::path& folder) {
  std::string probe = (folder / ".spillway-XXXXXX").string();
  if (::mkdtemp(probe.data()) == nullptr) return errno;
  return ::rmdir(probe.c_str()) == 0 ? 0 : errno;
}

}  // namespace

std::string OutputFolder::problem(bool overwrite) const {
  const std::string name = "'" + path_.string() + "' ";
  std::error_code error;
  if (is_too_long(path_)) return "is too long a path; choose a shorter one";
  const auto there = existing_part(path_);
  if (!fs::is_directory(there, error))
    return name + "cannot be a folder: " + there.string() + " is a file; choose another";
  if (const int code = try_to_write(there); code != 0)
    return name + "cannot be written: " + there.string() + ": " +
           std::generic_category().message(code) + "; choose another";
  if (!fs::exists(path_, error) || fs::is_empty(path_, error)) return "";
  if (!fs::exists(path_ / kMarker, error))
    return name + "holds files that are no earlier run's (it has no file .spillway), so it is " +
           "not overwritten; choose another";
  if (!overwrite)
    return name + "holds an earlier run; add --overwrite to replace it, go on with it by " +
           "'spillway resume', or choose another";
  if (is_live(path_ / kEventFile))
    return name + "holds a run that goes on; wait for its end, or choose another";
  return "";
}

void OutputFolder::create(const std::vector<std::string>& trials) const {
  make_folders(path_);
  write(kMarker, "This folder belongs to a run of spillway train, which may replace it.\n");
  for (const char* output : {kEventFile, "results.csv", "plan.json", "config.yaml", "trace.json",
                             kJournalFile, "journal.sqlite-wal", "journal.sqlite-shm", "trials"})
    delete_tree(path_ / output);
  for (const auto& trial : trials) make_folders(weights_file(trial).parent_path());
}

Bytes OutputFolder::free_bytes() const {
  return posix_file_system().free_bytes(existing_part(path_));
}

fs::path OutputFolder::weights_file(const std::string& trial) const {
  return path_ / "trials" / trial / "weights.safetensors";
}

fs::path OutputFolder::checkpoints(const std::string& trial) const {
  return path_ / "trials" / trial / "checkpoints";
}

void OutputFolder::write(const std::string& name, const std::string& text) const {
  AtomicFile out(path_ / name);
  out.write(text);
  out.commit();
}

}  // namespace spillway
