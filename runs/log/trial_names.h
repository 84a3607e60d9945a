#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runs/log/run_log.h"

/// What a run's trials are called where space is short. Files and folders keep the long names.
namespace spillway {

/// "t03": the number of the trial in the log, as wide as the number of trials; the name of a single
/// trial.
std::string short_name(const RunLog& run, std::size_t trial);

/// The trial with this name, long or short.
std::optional<std::size_t> trial_named(const RunLog& run, std::string_view name);

/// Where the files of a trial are, by its long name.
std::filesystem::path trial_folder(const std::filesystem::path& folder, const std::string& name);

/// The swept keys of all trials.
std::vector<std::string> swept_keys(const RunLog& run);

/// A title for each swept key: the last part of the key, or the whole key if others end alike.
std::vector<std::string> parameter_titles(const std::vector<std::string>& keys);

/// The value of a key in a trial as the log has it; null if it is not swept there.
const std::string* parameter_of(const TrialLog& trial, const std::string& key);

/// The values of a trial by key; numbers have four significant digits. "-": it has none.
std::vector<std::string> short_parameters(const TrialLog& trial,
                                          const std::vector<std::string>& keys);

}  // namespace spillway
