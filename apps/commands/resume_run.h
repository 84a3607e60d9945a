#pragma once

#include <optional>
#include <vector>

#include "apps/commands/follow.h"
#include "apps/commands/train_command.h"
#include "apps/commands/trial_call.h"
#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "runs/folder/output_folder.h"

namespace spillway {

/// What is resumed beside the trials that have not ended.
struct ResumeWish {
  bool retry_failed = false;         ///< trials that failed
  std::optional<CallForTrial> call;  ///< a trial that was paused, stopped, or is extended
  std::optional<Json> request;       ///< `set` or `clone`, carried out before the trials train
};

/// Resumes the run in the folder, wherever `options` names one. Trials that have ended keep their
/// results, unless the wish is another, or they have more steps than before. `all` may contain more
/// trials than the run. Rebuilds and reports damaged or missing files. Throws what train() throws,
/// and InUse.
ExitCode resume_run(std::vector<Trial> all, Findings findings, const OutputFolder& folder,
                    const ResumeOptions& options, const ResumeWish& wish, const Console& console);

/// Like above, with the trials of config.yaml in the folder. Throws InUse first.
ExitCode resume(const OutputFolder& folder, const ResumeOptions& options, const ResumeWish& wish,
                const Console& console);

/// Throws ConfigError if the folder has no run to resume.
void require_begun(const OutputFolder& folder);

}  // namespace spillway
