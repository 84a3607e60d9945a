#pragma once

#include <vector>

#include "apps/commands/follow.h"
#include "runs/config/findings.h"
#include "runs/config/sweep.h"
#include "runs/folder/output_folder.h"

namespace spillway {

struct ResumeOptions;

/// Resumes the run in the folder, wherever `options` names one. Trials that have ended keep their
/// results, unless `retry_failed` resumes the failed ones. Rebuilds and reports damaged or missing
/// files. Throws what train() throws, and InUse.
ExitCode resume_run(const std::vector<Trial>& all, Findings findings, const OutputFolder& folder,
                    const ResumeOptions& options, const Console& console);

}  // namespace spillway
