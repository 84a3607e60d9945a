#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "runs/folder/output_folder.h"
#include "runs/log/run_log.h"

/// A run that is resumed with more trials or more steps than it had.
namespace spillway {

/// The trials of a configuration, those of the run first: in the order of its log, with the names
/// that they have there. Throws ConfigError (`sweep`) if one of them is missing.
std::vector<Trial> match_trials(std::vector<Trial> given, const RunLog& run);

/// The configuration in the folder, without overrides, as read_first_trial() has it; nothing if it
/// has none. Throws ConfigError if it cannot be parsed.
std::optional<RunConfig> stored_config(const OutputFolder& folder);

/// Gives each trial its TrainConfig::extended_from. `stored`: the run's configuration until now.
/// Adds a finding (`train.max_steps`) if a trial would become shorter.
void extend_trials(std::vector<Trial>& trials, const RunLog& run, const RunConfig& stored,
                   Findings& findings);

/// The trials of the configuration in the folder, and one more with these values ("a.b=c"), as an
/// entry of `sweep.trials`. Throws and finds what read_trials() does.
std::vector<Trial> trials_with(const OutputFolder& folder, const std::vector<std::string>& values,
                               Findings& findings);

/// Like read_trials(), for a file that resumes the run in the folder: with the entries of
/// `sweep.trials` that the run has got and the file lacks.
std::vector<Trial> read_trials_of_run(const std::string& file, std::vector<std::string> overrides,
                                      const OutputFolder& folder, Findings& findings);

/// If `given` has more trials or steps than `stored`, writes the configuration in the folder again
/// with them, atomically, so that a later resume trains the same trials. Throws IoError.
void store_growth(const OutputFolder& folder, const RunConfig& stored, const RunConfig& given);

}  // namespace spillway
