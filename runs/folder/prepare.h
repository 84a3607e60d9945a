#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "runs/folder/output_folder.h"
#include "spillway/error.h"
#include "spillway/session.h"

/// From a configuration file to trials that a session knows: what all commands begin with.
namespace spillway {

/// The trials of a file with overrides ("a.b=c") put in, and `output_dir`, where it is given, as it
/// stands. Throws ConfigError for text that is no configuration at all; the rest goes into
/// `findings`.
std::vector<Trial> read_trials(const std::string& file, const std::vector<std::string>& overrides,
                               Findings& findings,
                               const std::optional<std::string>& output_dir = std::nullopt);

/// The session that all trials of a file share. What is wrong goes into `findings`; there is none
/// then, nor where that is wrong which it is made from.
std::unique_ptr<Session> make_session(SessionConfig config, const Trial& any, Findings& findings);

/// What a run in `folder` trains. All that can be known to be wrong without computing goes into
/// `findings`.
std::vector<TrialConfig> run_configs(const std::vector<Trial>& trials, const OutputFolder& folder,
                                     Findings& findings);

/// Of a run on the command line.
SessionConfig run_session(const Trial& any, const std::filesystem::path& pilot_cache);

/// Submits `configs`, one a trial; the ids of those that fit are consecutive. Returns for each
/// trial why it does not fit, or nothing. Throws ConfigErrors for all that are wrong otherwise.
std::vector<std::optional<DoesNotFit>> submit_all(Session& session,
                                                  std::vector<TrialConfig> configs,
                                                  const std::vector<Trial>& trials);

/// The same, and all must fit. Devices that a trial does without are said on `log`. Throws
/// DoesNotFit for the trial that needs most.
void submit_run(Session& session, std::vector<TrialConfig> configs,
                const std::vector<Trial>& trials, std::ostream& log);

}  // namespace spillway
