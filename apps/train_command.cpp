#include "apps/train_command.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <ostream>
#include <set>

#include "apps/chrome_trace.h"
#include "apps/event_json.h"
#include "apps/event_log.h"
#include "apps/output_folder.h"
#include "apps/prepare.h"
#include "apps/progress.h"
#include "apps/report.h"
#include "apps/terminal.h"
#include "apps/trial_factory.h"
#include "core/error.h"

namespace spillway {
namespace {

/// About 20 MB in memory and in the file.
constexpr std::size_t kMaxTraceSpans = 100'000;

/// Everything that can be known to be wrong without computing.
std::vector<TrialConfig> check(const std::vector<Trial>& trials, const OutputFolder& folder,
                               const TrainOptions& options, Findings& findings) {
  std::vector<TrialConfig> configs;
  TrialFactory factory;
  for (const auto& trial : trials)
    configs.push_back(factory.make(trial, folder.weights_file(trial.name), findings));
  if (const auto problem = folder.problem(options.overwrite); !problem.empty())
    note(ConfigError("output_dir", 0, problem), trials.front().tree, findings);
  return configs;
}

/// Throws DoesNotFit for the trial that needs most, if any does not fit.
void require_fit(const std::vector<std::optional<DoesNotFit>>& misfits, std::ostream& log) {
  const auto needed = [](const auto& misfit) { return misfit ? misfit->needed : 0; };
  const auto num = std::ranges::count_if(misfits, [](const auto& m) { return m.has_value(); });
  if (num == 0) return;
  log << num << " of " << misfits.size() << " trials do not fit; the largest need:\n";
  throw **std::ranges::max_element(misfits, {}, needed);
}

/// Devices that take no part in a trial, each once.
void say_declined(const Session& session, std::size_t num_trials, std::ostream& log) {
  std::set<std::string> said;
  for (std::size_t t = 0; t < num_trials; ++t) {
    for (const auto& sentence : session.plan(JobId(t)).declined) {
      if (said.insert(sentence).second) log << sentence << "\n";
    }
  }
}

/// Writes down and shows what happens until the session's run is over.
void follow(const std::future<void>& running, Session& session, EventLog& log, Progress& progress,
            const std::atomic<bool>& interrupted) {
  constexpr std::chrono::milliseconds kInterval(100);
  std::uint64_t seen = 0;
  for (bool last = false, stopped = false; !last;) {
    last = running.wait_for(kInterval) == std::future_status::ready;
    for (const auto& event : session.poll(seen, 0)) {
      log.add(to_json(event));
      progress.take(log.run(), event);
      seen = event.sequence;
    }
    log.flush();
    progress.show(log.run());
    if (interrupted && !stopped) {
      session.stop();
      stopped = true;
    }
  }
  progress.finish();
}

/// Runs the session on a thread of its own. What cannot be written down ends the run.
void run(Session& session, EventLog& log, Progress& progress,
         const std::atomic<bool>& interrupted) {
  auto running = std::async(std::launch::async, [&] { session.run(); });
  try {
    follow(running, session, log, progress, interrupted);
  } catch (...) {
    session.stop();
    throw;
  }
  running.get();
}

/// The run on a virtual clock, unless that would take long itself.
std::optional<RunResult> simulate(const Session& session, const std::vector<Trial>& trials) {
  constexpr double kMaxOps = 1e5;  // two seconds
  double ops = 0;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const auto& train = trials[t].config.train;
    ops += 2.0 * session.plan(JobId(t)).num_shards * train.virtual_nodes *
           static_cast<double>(train.max_steps);
  }
  if (ops > kMaxOps) return std::nullopt;
  return session.simulate();
}

std::unique_ptr<Progress> make_progress(const TrainOptions& options, std::ostream& out) {
  const int file = options.progress_file;
  return terminal_size(file) ? make_screen_progress(out, file) : make_line_progress(out);
}

void write_outputs(const OutputFolder& folder, const RunLog& run) {
  folder.write("results.csv", results_csv(run));
  folder.write("plan.json", plan_json(run));
  for (const auto& trial : run.trials)
    folder.write("trials/" + trial.result.name + "/metrics.csv", metrics_csv(trial));
}

ExitCode exit_code(const RunLog& run, bool interrupted) {
  const auto any = [&](TrialState state) {
    return std::ranges::any_of(run.trials, [&](const auto& t) { return t.result.state == state; });
  };
  if (interrupted && any(TrialState::stopped)) return kInterrupted;
  return any(TrialState::failed) ? kTrialFailed : kDone;
}

}  // namespace

ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const std::atomic<bool>& interrupted) {
  Findings findings;
  const auto trials = read_trials(options.config_file, options.overrides, findings);
  const auto& config = trials.front().config;
  const OutputFolder folder(config.output_dir);
  auto configs = check(trials, folder, options, findings);
  findings.throw_if_any();

  auto session_config = config.session;
  session_config.max_trace_spans = kMaxTraceSpans;
  session_config.pilot_cache = options.pilot_cache;
  Session session = make_session(session_config, trials.front());
  require_fit(submit_all(session, std::move(configs), trials), log);
  say_declined(session, trials.size(), log);
  std::vector<std::string> names;
  for (const auto& trial : trials) names.push_back(trial.name);
  folder.create(names);
  folder.write("config.yaml", to_yaml(config));

  const auto planned = simulate(session, trials);
  EventLog events(folder.file(kEventFile));
  events.add(run_event(trials, session, planned));
  run(session, events, *make_progress(options, options.json ? log : out), interrupted);
  const auto result = session.result();
  events.add(end_event(result));
  events.flush();
  write_outputs(folder, events.run());
  folder.write("trace.json", chrome_trace(trials, result.trace,
                                          planned ? planned->trace : std::vector<TraceSpan>{}));
  if (options.json) {
    out << json_report(events.run(), RunState::ended);
  } else {
    print_report(out, events.run(), folder.path());
  }
  out.flush();
  return exit_code(events.run(), interrupted);
}

}  // namespace spillway
