#include "apps/commands/train_command.h"

#include "apps/commands/follow.h"
#include "apps/commands/resume_command.h"
#include "runs/control/open_training.h"

namespace spillway {

ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests) {
  auto [folder, run] = open_training({options.config_file, options.overrides, options.overwrite},
                                     {options.pilot_cache, options.machine}, log);
  return follow_or_report(run, folder, {out, log, options.json, options.progress_file, requests});
}

}  // namespace spillway
