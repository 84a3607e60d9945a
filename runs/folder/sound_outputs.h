#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runs/folder/output_folder.h"
#include "runs/log/run_log.h"

/// What should lie in a run's folder, and whether it does.
namespace spillway {

/// The newest checkpoints by trial, as the log and the journal know them.
struct KnownCheckpoints {
  std::map<std::string, SavedCheckpoint> newest;
  std::string journal_problem;  ///< empty: the journal is sound, or there is none
};
KnownCheckpoints known_checkpoints(const RunLog& run, const OutputFolder& folder);

/// Numbers of the checkpoints that lie in a trial's folder, ascending, sound or not; none where
/// there is no folder. Throws IoError.
std::vector<std::uint64_t> checkpoints_in(const std::filesystem::path& folder);

/// What is wrong with the final weights of a trial that is done, such as "its weights are missing";
/// empty: nothing, or its log does not say what they are. Reads all of the file.
std::string problem_of_weights(const std::filesystem::path& file, const TrialResult& trial);

}  // namespace spillway
