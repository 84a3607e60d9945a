#pragma once

#include <optional>
#include <vector>

#include "apps/commands/follow.h"
#include "apps/commands/train_command.h"
#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "runs/control/resume_run.h"
#include "runs/folder/output_folder.h"

namespace spillway {

/// Trains a run that is open, or reports the one in the folder if all its trials have ended. When
/// its hosts meet again, this one resumes it as host 0.
ExitCode follow_or_report(std::optional<OpenRun> run, const OutputFolder& folder,
                          const RunResources& resources, const Console& console,
                          const std::optional<Json>& request = std::nullopt);

/// Resumes the run and trains it, or reports it if all trials have ended. Arguments and errors are
/// those of resume_run().
ExitCode resume_and_follow(std::vector<Trial> all, Findings findings, const OutputFolder& folder,
                           const RunResources& resources, const ResumeWish& wish,
                           const Console& console);

/// Like above, with the trials of config.yaml in the folder. Throws InUse first.
ExitCode resume(const OutputFolder& folder, const ResumeOptions& options, const ResumeWish& wish,
                const Console& console);

}  // namespace spillway
