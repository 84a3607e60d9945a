#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "runs/folder/machine_fit.h"
#include "runs/folder/output_folder.h"
#include "spillway/error.h"
#include "spillway/session.h"

/// The first steps of every command: from a configuration file to the trials of a session.
namespace spillway {

/// Reads the trials of a file, applies overrides ("a.b=c") and replaces `output_dir` if it is
/// given. Throws ConfigError if the file or an override cannot be parsed; adds all other problems
/// to `findings`.
std::vector<Trial> read_trials(const std::string& file, const std::vector<std::string>& overrides,
                               Findings& findings,
                               const std::optional<std::string>& output_dir = std::nullopt);

/// The first of these trials, without what the file of a model decides: that file, which may be
/// large, is read only if steps depend on it. Throws like read_trials(), and ignores problems.
Trial read_first_trial(const std::string& file, const std::vector<std::string>& overrides);

/// Makes paths absolute, so that the configuration can be used from any folder.
RunConfig from_anywhere(RunConfig config);

/// Throws ConfigError (`hosts.number`) for another host than host 0.
void require_first_host(const RunConfig& config);

/// Like read_trials(), of a document instead of a file.
std::vector<Trial> trials_of_document(const std::string& text,
                                      const std::vector<std::string>& overrides,
                                      Findings& findings);

/// The trials of a document with their steps, also if they are given in epochs.
std::vector<Trial> trials_of(const YamlNode& tree, Findings& findings);

/// Makes the session that all trials of a file share. Adds problems to `findings`; returns null if
/// there are any in the session's part of the configuration.
std::unique_ptr<Session> make_session(SessionConfig config, const Trial& any, Findings& findings);

/// The trials of a run in `folder`. Adds all problems that can be found without computing to
/// `findings`.
std::vector<TrialConfig> run_configs(const std::vector<Trial>& trials, const OutputFolder& folder,
                                     Findings& findings);

/// The session's configuration of a run on the command line.
SessionConfig run_session(const Trial& any, const std::filesystem::path& pilot_cache);

/// Submits `configs`, one per trial; the trials that fit get consecutive ids. Returns why a trial
/// does not fit, or nullopt, for each. Throws ConfigErrors with all other problems.
std::vector<std::optional<DoesNotFit>> submit_all(Session& session,
                                                  std::vector<TrialConfig> configs,
                                                  const std::vector<Trial>& trials);

/// A session that has the trials of a run, submitted like submit_all().
struct SubmittedRun {
  std::vector<Trial> trials;
  std::unique_ptr<Session> session;
  std::vector<std::optional<DoesNotFit>> misfits;  ///< of each trial
};
/// Makes the session of a new run and submits `configs`, one per trial. The trials take the devices
/// that others leave (scheduling.sharing: fill) if there are several trials and devices, the
/// configuration says nothing about how many devices trials have, and memory and disks hold the
/// state of all at once. On GPUs, if the configuration gives no activation_share, it is the first
/// of 0.25, 0.5, 0.75, 0.9 and 0.1 with which all trials fit. Throws ConfigErrors with `findings`
/// and all other problems.
SubmittedRun submit_new_run(std::vector<Trial> trials, const std::vector<TrialConfig>& configs,
                            SessionConfig config, const HostMemory& machine, Findings findings);

/// Throws DoesNotFit for the largest trial that does not fit, or if the run needs more memory than
/// `machine` has. Lists devices that trials do not use on `log`, and says there if memory is short
/// now.
void require_fit(const Session& session, const SessionConfig& config,
                 const std::vector<std::optional<DoesNotFit>>& misfits, const HostMemory& machine,
                 std::ostream& log);

}  // namespace spillway
