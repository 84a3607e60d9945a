#include "apps/commands/train_command.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "apps/commands/follow.h"
#include "apps/commands/resume_run.h"
#include "runs/config/yaml_path.h"
#include "runs/folder/growth.h"
#include "runs/folder/prepare.h"
#include "runs/folder/trial_factory.h"
#include "runs/log/event_json.h"
#include "spillway/error.h"
#include "trainer/config/batch_split.h"

namespace spillway {
namespace {

/// Makes paths absolute, so that the configuration can be used from any folder.
RunConfig from_anywhere(RunConfig config) {
  const auto here = std::filesystem::current_path();
  config.data_root = here / config.data_root;
  if (!config.session.offload_path.empty())
    config.session.offload_path = here / config.session.offload_path;
  return config;
}

/// Writes down how the batch is divided, unless each trial has its own default.
RunConfig with_split(RunConfig config) {
  const auto is_swept = [&](const char* key) {
    return std::ranges::any_of(config.sweep.parameters,
                               [&](const auto& parameter) { return lies_in(key, parameter.key); });
  };
  if (is_swept("train.batch_size") || is_swept("train.virtual_nodes")) return config;
  config.train.virtual_nodes = virtual_nodes_of(config.train);
  if (!is_swept("train.reduction_groups"))
    config.train.reduction_groups = reduction_groups_of(config.train);
  return config;
}

void require_no_problem(const OutputFolder& folder, bool overwrite) {
  const std::string problem = folder.problem(overwrite);
  if (!problem.empty()) throw ConfigError("output_dir", 0, problem);
}

ResumeOptions resuming(const TrainOptions& options) {
  return {.pilot_cache = options.pilot_cache, .machine = options.machine};
}

/// Trains from the beginning. Checks the folder before planning, to report problems early, and
/// again under its lock. `may_resume`: resumes a run that another process has started in the
/// meantime.
ExitCode begin(const std::vector<Trial>& given, Findings findings, const OutputFolder& folder,
               const TrainOptions& options, bool may_resume, const Console& console) {
  run_configs(given, folder, findings);
  run_noting(given.front().tree, findings, [&] { require_no_problem(folder, options.overwrite); });
  make_session(run_session(given.front(), options.pilot_cache), given.front(), findings);
  findings.throw_if_any();
  const SubmittedRun run =
      submit_new_run(given, folder, options.pilot_cache, options.machine, console.log);
  const std::vector<Trial>& trials = run.trials;
  Session& session = *run.session;
  const auto planned = simulate(session, trials);

  std::optional<RunLock> lock(folder.lock());
  if (may_resume && folder.content() == OutputFolder::Content::run) {  // started meanwhile
    lock.reset();
    return resume_run(trials, {}, folder, resuming(options), {}, console);
  }
  require_no_problem(folder, options.overwrite);
  Place place;
  std::vector<std::string> names;
  for (const auto& trial : trials) {
    place.trials.push_back(names.size());
    names.push_back(trial.name);
  }
  folder.create(names);
  folder.write("config.yaml", to_yaml(with_split(from_anywhere(trials.front().config))));
  session.keep_journal(std::move(*lock));
  EventLog events(folder.file(kEventFile));
  events.add(run_event(trials, session, planned));
  events.sync();  // without the list of trials no checkpoint could be found
  return follow(session, trials, place, planned, folder, events, console);
}

}  // namespace

ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests) {
  Findings findings;
  const auto trials = read_trials(options.config_file, options.overrides, findings);
  const RunConfig& config = trials.front().config;
  const OutputFolder folder(config.output_dir);
  const Console console{out, log, options.json, options.progress_file, requests};
  const bool is_auto = config.resume == ResumeMode::automatic && !options.overwrite;
  folder.require_free();
  if (is_auto && folder.content() == OutputFolder::Content::run) {
    Findings of_run;
    return resume_run(read_trials_of_run(options.config_file, options.overrides, folder, of_run),
                      std::move(of_run), folder, resuming(options), {}, console);
  }
  return begin(trials, std::move(findings), folder, options, is_auto, console);
}

}  // namespace spillway
