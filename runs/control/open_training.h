#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "runs/control/open_run.h"
#include "runs/control/resume_run.h"
#include "runs/folder/output_folder.h"

namespace spillway {

/// What is to be trained: a configuration file with overrides ("a.b=c").
struct TrainingRequest {
  std::string config_file;
  std::vector<std::string> overrides;
  bool overwrite = false;  ///< replaces a run that is in the folder, whatever the file says
};

/// A run and its folder; no run: all trials of the one in the folder have ended.
struct OpenTraining {
  OutputFolder folder;
  std::optional<OpenRun> run;
};

/// Begins the run that a file describes, or resumes it if the file says so and the folder has it.
/// Notes for the user go to `notes`. Throws what begin_run() and resume_run() throw.
OpenTraining open_training(const TrainingRequest& request, const RunResources& resources,
                           std::ostream& notes);

/// Resumes the run in a folder with its own configuration and overrides, see resume_run(). Throws
/// InUse first.
std::optional<OpenRun> reopen_training(const OutputFolder& folder,
                                       const std::vector<std::string>& overrides,
                                       const ResumeWish& wish, const RunResources& resources,
                                       std::ostream& notes);

}  // namespace spillway
