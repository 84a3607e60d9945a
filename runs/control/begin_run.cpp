#include "runs/control/begin_run.h"

#include <algorithm>
#include <utility>

#include "runs/config/yaml_path.h"
#include "runs/folder/prepare.h"
#include "runs/folder/trial_factory.h"
#include "runs/log/event_json.h"
#include "spillway/error.h"
#include "trainer/config/batch_split.h"

namespace spillway {
namespace {

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

}  // namespace

std::optional<OpenRun> begin_run(const std::vector<Trial>& given, Findings findings,
                                 const OutputFolder& folder, const RunResources& resources,
                                 Earlier earlier, std::ostream& notes) {
  require_first_host(given.front().config);
  const bool overwrites = earlier == Earlier::overwrite;
  const auto configs = run_configs(given, folder, findings);
  run_noting(given.front().tree, findings, [&] { require_no_problem(folder, overwrites); });
  auto [trials, session, misfits] =
      submit_new_run(given, configs, run_session(given.front(), resources.pilot_cache),
                     resources.machine, std::move(findings));
  require_fit(*session, trials.front().config.session, misfits, resources.machine, notes);
  OpenRun run{.all = given, .trials = std::move(trials), .session = std::move(session)};
  run.planned = simulate(*run.session, run.trials);

  RunLock lock = folder.lock();
  if (earlier == Earlier::resume && folder.content() == OutputFolder::Content::run) {
    return std::nullopt;
  }
  require_no_problem(folder, overwrites);
  std::vector<std::string> names;
  for (const auto& trial : run.trials) {
    run.place.trials.push_back(names.size());
    names.push_back(trial.name);
  }
  folder.create(names);
  folder.write("config.yaml", to_yaml(with_split(from_anywhere(run.trials.front().config))));
  run.session->keep_journal(std::move(lock));
  run.events = std::make_unique<EventLog>(folder.file(kEventFile));
  run.events->add(run_event(run.trials, *run.session, run.planned));
  run.events->sync();  // without the list of trials no checkpoint could be found
  return run;
}

}  // namespace spillway
