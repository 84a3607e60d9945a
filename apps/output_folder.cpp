#include "apps/output_folder.h"

#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/error.h"
#include "trainer/atomic_file.h"

namespace spillway {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".spillway";

void create_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw IoError("cannot create folder", path, error.value());
}

void delete_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw IoError("cannot remove", path, error.value());
}

/// `path`, or the nearest folder above it that is there.
fs::path existing_part(fs::path path) {
  std::error_code error;
  path = fs::absolute(path, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  while (!fs::exists(fs::symlink_status(path, error)) && path != path.parent_path())
    path = path.parent_path();
  return path;
}

}  // namespace

std::string OutputFolder::problem(bool overwrite) const {
  const std::string name = "'" + path_.string() + "' ";
  std::error_code error;
  const auto there = existing_part(path_);
  if (!fs::is_directory(there, error))
    return name + "cannot be a folder: " + there.string() + " is a file; choose another";
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    return name + "cannot be written: no permission for " + there.string() + "; choose another";
  if (!fs::exists(path_, error) || fs::is_empty(path_, error)) return "";
  if (!fs::exists(path_ / kMarker, error))
    return name + "holds files that are no earlier run's (it has no file .spillway), so it is " +
           "not overwritten; choose another";
  if (!overwrite)
    return name + "holds an earlier run; add --overwrite to replace it, or choose another";
  return "";
}

void OutputFolder::create(const std::vector<std::string>& trials) const {
  create_folder(path_);
  write(kMarker, "This folder belongs to a run of spillway train, which may replace it.\n");
  for (const char* output :
       {"events.jsonl", "results.csv", "plan.json", "config.yaml", "trace.json", "trials"})
    delete_tree(path_ / output);
  for (const auto& trial : trials) create_folder(weights_file(trial).parent_path());
}

fs::path OutputFolder::weights_file(const std::string& trial) const {
  return path_ / "trials" / trial / "weights.safetensors";
}

void OutputFolder::write(const std::string& name, const std::string& text) const {
  AtomicFile out(path_ / name);
  out.write(text);
  out.commit();
}

}  // namespace spillway
