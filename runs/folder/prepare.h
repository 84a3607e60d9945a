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

/// The trials of a document with their steps, also if they are given in epochs.
std::vector<Trial> trials_of(const YamlNode& tree, Findings& findings);

/// The same trials, which take the devices that others leave (scheduling.sharing: fill).
/// Nothing unless there are several
/// trials and devices, and the configuration says nothing about how many devices trials have.
std::optional<std::vector<Trial>> sharing_devices(const std::vector<Trial>& trials);

/// Whether host memory holds the state of all trials at once.
bool fit_at_once(const SessionConfig& session, const std::vector<TrialPlan>& plans,
                 const HostMemory& machine);

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

/// A session that has the trials of a run.
struct SubmittedRun {
  std::vector<Trial> trials;
  std::unique_ptr<Session> session;
};
/// Makes the session of a new run and submits its trials like submit_run(). They share devices if
/// sharing_devices() says so and their state fits at once.
SubmittedRun submit_new_run(const std::vector<Trial>& trials, const OutputFolder& folder,
                            const std::filesystem::path& pilot_cache, const HostMemory& machine,
                            std::ostream& log);

/// Like submit_all(), but throws DoesNotFit for the largest trial that does not fit, or if the run
/// needs more memory than `machine` has. Lists devices that trials do not use on `log`, and says
/// there if memory is short now.
void submit_run(Session& session, std::vector<TrialConfig> configs,
                const std::vector<Trial>& trials, const HostMemory& machine, std::ostream& log);

}  // namespace spillway
