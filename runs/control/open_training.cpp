#include "runs/control/open_training.h"

#include <utility>

#include "runs/control/begin_run.h"
#include "runs/folder/growth.h"
#include "runs/folder/prepare.h"

namespace spillway {

OpenTraining open_training(const TrainingRequest& request, const RunResources& resources,
                           std::ostream& notes) {
  const RunConfig config = read_first_trial(request.config_file, request.overrides).config;
  OpenTraining training{.folder = OutputFolder(config.output_dir), .run = {}};
  const OutputFolder& folder = training.folder;
  const bool resumes = config.resume == ResumeMode::automatic && !request.overwrite;
  folder.require_free();
  const auto resume = [&] {
    Findings of_run;
    auto all = read_trials_of_run(request.config_file, request.overrides, folder, of_run);
    training.run = resume_run(std::move(all), std::move(of_run), folder, resources, {}, notes);
  };
  if (resumes && folder.content() == OutputFolder::Content::run) {
    resume();
    return training;
  }
  Findings findings;
  const auto trials = read_trials(request.config_file, request.overrides, findings);
  const Earlier earlier = request.overwrite ? Earlier::overwrite
                          : resumes         ? Earlier::resume
                                            : Earlier::refuse;
  training.run = begin_run(trials, std::move(findings), folder, resources, earlier, notes);
  if (!training.run) resume();
  return training;
}

std::optional<OpenRun> reopen_training(const OutputFolder& folder,
                                       const std::vector<std::string>& overrides,
                                       const ResumeWish& wish, const RunResources& resources,
                                       std::ostream& notes) {
  folder.require_free();
  Findings findings;
  auto trials =
      read_trials(folder.file("config.yaml"), overrides, findings, folder.path().string());
  return resume_run(std::move(trials), std::move(findings), folder, resources, wish, notes);
}

}  // namespace spillway
