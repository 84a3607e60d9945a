#include "apps/commands/train_command.h"

#include <utility>

#include "apps/commands/follow.h"
#include "apps/commands/resume_command.h"
#include "runs/control/begin_run.h"
#include "runs/folder/growth.h"
#include "runs/folder/prepare.h"

namespace spillway {
namespace {

RunResources resources_of(const TrainOptions& options) {
  return {options.pilot_cache, options.machine};
}

}  // namespace

ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests) {
  Findings findings;
  const auto trials = read_trials(options.config_file, options.overrides, findings);
  const RunConfig& config = trials.front().config;
  const OutputFolder folder(config.output_dir);
  const Console console{out, log, options.json, options.progress_file, requests};
  const bool resumes = config.resume == ResumeMode::automatic && !options.overwrite;
  folder.require_free();
  if (resumes && folder.content() == OutputFolder::Content::run) {
    Findings of_run;
    auto all = read_trials_of_run(options.config_file, options.overrides, folder, of_run);
    return resume_and_follow(std::move(all), std::move(of_run), folder, resources_of(options), {},
                             console);
  }
  const Earlier earlier = options.overwrite ? Earlier::overwrite
                          : resumes         ? Earlier::resume
                                            : Earlier::refuse;
  auto run = begin_run(trials, std::move(findings), folder, resources_of(options), earlier, log);
  if (run) return follow(*run, folder, console);
  return resume_and_follow(trials, {}, folder, resources_of(options), {}, console);
}

}  // namespace spillway
