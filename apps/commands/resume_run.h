#pragma once

#include <filesystem>
#include <vector>

#include "apps/commands/follow.h"
#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "runs/folder/output_folder.h"

namespace spillway {

/// Resumes the run in the folder. Trials that have ended keep their results, unless `retry_failed`
/// resumes the failed ones, or they have more steps than before. `all` may contain more trials than
/// the run. Rebuilds and reports damaged or missing files. Throws what train() throws, and InUse.
ExitCode resume_run(std::vector<Trial> all, Findings findings, const OutputFolder& folder,
                    bool retry_failed, const std::filesystem::path& pilot_cache,
                    const Console& console);

}  // namespace spillway
