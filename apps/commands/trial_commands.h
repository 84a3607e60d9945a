#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "apps/commands/train_command.h"
#include "runs/control/trial_call.h"
#include "runs/folder/output_folder.h"

/// Commands about one trial of a run. If a process trains the run, they ask it and wait until their
/// effect is durable. All throw ConfigError if the call means nothing, and Error if that process
/// does not answer.
namespace spillway {

/// `spillway stop` and `spillway pause`. If no process trains the run, its log records the call.
ExitCode call_for_trial(const std::string& folder, const CallForTrial& call, std::ostream& out);

/// `spillway extend`. If no process trains the run, resumes it like resume().
ExitCode extend(const ResumeOptions& options, std::optional<std::int64_t> steps, std::ostream& out,
                std::ostream& log, const Requests& requests);

/// `spillway add`: one more trial, with the values of `options.overrides`. If no process trains the
/// run, resumes it like resume().
ExitCode add(const ResumeOptions& options, std::ostream& out, std::ostream& log,
             const Requests& requests);

/// `spillway set` and `spillway clone`: of `options.trial`, with the values of `options.overrides`.
/// If no process trains the run, they resume it like resume().
ExitCode set(const ResumeOptions& options, std::ostream& out, std::ostream& log,
             const Requests& requests);
ExitCode clone(const ResumeOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests);

/// Asks the process that trains the run; prints its answer on `out`. Returns whether there is one.
bool ask(const OutputFolder& folder, const Json& request, std::ostream& out);

}  // namespace spillway
