#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runs/folder/output_folder.h"
#include "runs/log/run_log.h"

/// Checks which outputs a run's folder should contain and whether they are intact.
namespace spillway {

/// The newest checkpoint of each trial according to the log and the journal.
struct KnownCheckpoints {
  std::map<std::string, SavedCheckpoint> newest;
  std::string journal_problem;  ///< empty: the journal is intact or missing
};
KnownCheckpoints known_checkpoints(const RunLog& run, const OutputFolder& folder);

/// Numbers of the checkpoints in a trial's folder, damaged ones included, ascending. Throws
/// IoError.
std::vector<std::uint64_t> checkpoints_in(const std::filesystem::path& folder);

/// What is wrong with the final weights of a trial that is done, such as "its weights are missing";
/// empty if they are intact or their hash is unknown. Reads the whole file.
std::string problem_of_weights(const std::filesystem::path& file, const TrialResult& trial);

}  // namespace spillway
