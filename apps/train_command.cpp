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
#include "apps/state_text.h"
#include "apps/terminal.h"
#include "apps/trial_factory.h"
#include "core/error.h"

namespace spillway {
namespace {

/// About 20 MB in memory and in the file.
constexpr std::size_t kMaxTraceSpans = 100'000;

/// Everything that can be known to be wrong without computing.
std::vector<TrialConfig> check(const std::vector<Trial>& trials, const OutputFolder& folder,
                               Findings& findings) {
  std::vector<TrialConfig> configs;
  TrialFactory factory;
  for (const auto& trial : trials) {
    TrialConfig made = factory.make(trial, findings);
    made.client_id = trial.name;
    made.weights_file = folder.weights_file(trial.name);
    made.checkpoint = trial.config.checkpoint;
    if (made.checkpoint.keep > 0) made.checkpoint.folder = folder.checkpoints(trial.name);
    configs.push_back(std::move(made));
  }
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

/// Where in the log of a run the events of a session belong: after those of sessions before it.
struct Place {
  std::vector<std::size_t> trials;  ///< the log's numbers, by the session's
  std::uint64_t sequence = 0;       ///< of the last event before
  double time_s = 0;

  SessionEvent operator()(SessionEvent event) const {
    if (event.trial.valid()) event.trial = JobId(trials.at(event.trial.index()));
    event.sequence += sequence;
    event.time_s += time_s;
    return event;
  }
};

/// Streams and switches that train and resume share.
struct Console {
  std::ostream& out;
  std::ostream& log;
  bool json;
  int progress_file;
  const Requests& requests;
};

/// Writes down and shows what happens until the session's run is over.
void follow(const std::future<void>& running, Session& session, const std::vector<Trial>& trials,
            const Place& place, EventLog& log, Progress& progress, const Console& console) {
  constexpr std::chrono::milliseconds kInterval(100);
  std::uint64_t seen = 0;
  unsigned states_shown = 0;
  const RunResult begin = session.result();  // with what resumed trials had reached
  const auto json_of = [&](const SessionEvent& event) {
    if (event.kind != SessionEvent::Kind::resumed) return to_json(place(event));
    const std::size_t trial = event.trial.index();
    return resumed_event(place(event), begin.trials[trial], trials[trial].config.train);
  };
  for (bool last = false, stopped = false; !last;) {
    last = running.wait_for(kInterval) == std::future_status::ready;
    for (const auto& event : session.poll(seen, 0)) {
      log.add(json_of(event));
      progress.take(log.run(), place(event));
      seen = event.sequence;
    }
    log.flush();
    if (const unsigned asked = console.requests.state; asked != states_shown) {
      progress.finish();
      console.log << state_text(session.state()) << std::flush;
      states_shown = asked;
    }
    progress.show(log.run());
    if (console.requests.stop && !stopped) {
      session.stop();
      stopped = true;
    }
  }
  progress.finish();
}

/// Runs the session on a thread of its own. What cannot be written down ends the run.
void run(Session& session, const std::vector<Trial>& trials, const Place& place, EventLog& log,
         Progress& progress, const Console& console) {
  auto running = std::async(std::launch::async, [&] { session.run(); });
  try {
    follow(running, session, trials, place, log, progress, console);
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

std::unique_ptr<Progress> make_progress(int file, std::ostream& out) {
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

SessionConfig session_config(const Trial& any, const std::filesystem::path& pilot_cache) {
  SessionConfig config = any.config.session;
  config.max_trace_spans = kMaxTraceSpans;
  config.wait_for_devices = false;  // nobody could add one
  config.pilot_cache = pilot_cache;
  return config;
}

void submit(Session& session, const std::vector<Trial>& trials, std::vector<TrialConfig> configs,
            std::ostream& log) {
  require_fit(submit_all(session, std::move(configs), trials), log);
  session.check();
  say_declined(session, trials.size(), log);
}

void print(const RunLog& run, const OutputFolder& folder, const Console& console) {
  if (console.json) {
    console.out << json_report(run, RunState::ended);
  } else {
    print_report(console.out, run, folder.path());
  }
  console.out.flush();
}

/// Trains, and leaves everything in the folder.
ExitCode train(Session& session, const std::vector<Trial>& trials, const Place& place,
               const std::optional<RunResult>& planned, const OutputFolder& folder,
               EventLog& events, const Console& console) {
  run(session, trials, place, events,
      *make_progress(console.progress_file, console.json ? console.log : console.out), console);
  const auto result = session.result();
  events.add(end_event(result));
  events.flush();
  write_outputs(folder, events.run());
  folder.write("trace.json", chrome_trace(trials, result.trace,
                                          planned ? planned->trace : std::vector<TraceSpan>{}));
  print(events.run(), folder, console);
  return exit_code(events.run(), console.requests.stop);
}

/// The log need not have been on the disk as the machine stopped; the journal was.
bool has_ended(const TrialLog& trial, TrialState in_journal, bool retry_failed) {
  const TrialState state = trial.result.state;
  return is_final(state) && state == in_journal && !(retry_failed && state == TrialState::failed);
}

/// Those that have not ended, of the trials that the run's configuration stands for.
Place open_trials(const std::vector<Trial>& all, const RunLog& before, const Session& session,
                  bool retry_failed) {
  const auto is_same = [](const Trial& trial, const TrialLog& log) {
    return trial.name == log.result.name;
  };
  if (!std::ranges::equal(all, before.trials, is_same)) {
    throw ConfigError("sweep", 0,
                      "is of other trials than the run has; leave it, or train in another folder");
  }
  Place place{.sequence = before.sequence, .time_s = before.time_s};
  std::map<std::string, TrialState> states;
  for (const TrialResult& trial : session.journal()) states[trial.name] = trial.state;
  for (std::size_t t = 0; t < all.size(); ++t) {
    if (!has_ended(before.trials[t], states[all[t].name], retry_failed)) place.trials.push_back(t);
  }
  return place;
}

/// Those that have ended, too: a result would be taken for that of another configuration.
void require_unchanged(Session& session, const std::vector<TrialConfig>& configs,
                       const OutputFolder& folder) {
  Findings findings;
  for (const TrialConfig& config : configs) {
    const auto changes = session.changes(config);
    if (changes.empty()) continue;
    findings.add("output_dir", 0,
                 "in '" + folder.path().string() + "' trial '" + config.name +
                     "' is of another contract:" + explain(changes) +
                     ", or choose another output_dir");
  }
  findings.throw_if_any();
}

/// Goes on with the run in the folder, whose trials these are.
ExitCode go_on(const std::vector<Trial>& all, Findings findings, const OutputFolder& folder,
               bool retry_failed, const std::filesystem::path& pilot_cache,
               const Console& console) {
  auto all_configs = check(all, folder, findings);
  const auto made = make_session(session_config(all.front(), pilot_cache), all.front(), findings);
  findings.throw_if_any();
  Session& session = *made;
  session.keep_journal(folder.path());
  const RunLog before = read_run(folder.path());
  const Place place = open_trials(all, before, session, retry_failed);
  require_unchanged(session, all_configs, folder);
  EventLog events(folder.file(kEventFile), before);
  std::vector<Trial> trials;
  std::vector<TrialConfig> configs;
  for (const std::size_t t : place.trials) {
    trials.push_back(all[t]);
    configs.push_back(std::move(all_configs[t]));
    configs.back().checkpoint.resume = true;
  }
  if (trials.empty()) {
    const bool any_failed = exit_code(before, false) == kTrialFailed;
    console.log << "all trials of this run have ended"
                << (any_failed ? "; --retry-failed takes up those that failed\n" : "\n");
    write_outputs(folder, before);  // the run may have ended before it came to that
    print(before, folder, console);
    return exit_code(before, false);
  }
  submit(session, trials, std::move(configs), console.log);
  const auto planned = simulate(session, trials);
  events.add(restart_event(place.trials, session, planned));
  return train(session, trials, place, planned, folder, events, console);
}

/// The same wherever it is read: paths that this program takes from its folder are whole.
RunConfig from_anywhere(RunConfig config) {
  const auto here = std::filesystem::current_path();
  config.data_root = here / config.data_root;
  if (!config.session.home_path.empty()) config.session.home_path = here / config.session.home_path;
  return config;
}

/// Trains from the beginning.
ExitCode begin(const std::vector<Trial>& trials, Findings findings, const OutputFolder& folder,
               bool overwrite, const std::filesystem::path& pilot_cache, const Console& console) {
  auto configs = check(trials, folder, findings);
  if (const auto problem = folder.problem(overwrite); !problem.empty())
    note(ConfigError("output_dir", 0, problem), trials.front().tree, findings);
  const auto made =
      make_session(session_config(trials.front(), pilot_cache), trials.front(), findings);
  findings.throw_if_any();
  Session& session = *made;
  submit(session, trials, std::move(configs), console.log);
  Place place;
  std::vector<std::string> names;
  for (const auto& trial : trials) {
    place.trials.push_back(names.size());
    names.push_back(trial.name);
  }
  folder.create(names);
  folder.write("config.yaml", to_yaml(from_anywhere(trials.front().config)));
  session.keep_journal(folder.path());
  const auto planned = simulate(session, trials);
  EventLog events(folder.file(kEventFile));
  events.add(run_event(trials, session, planned));
  events.sync();  // without it no checkpoint could be found again
  return train(session, trials, place, planned, folder, events, console);
}

}  // namespace

ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const Requests& requests) {
  Findings findings;
  const auto trials = read_trials(options.config_file, options.overrides, findings);
  const RunConfig& config = trials.front().config;
  const OutputFolder folder(config.output_dir);
  const Console console{out, log, options.json, options.progress_file, requests};
  const bool is_auto = config.resume == "auto" && !options.overwrite;
  if (is_auto && has_begun(folder.path()))
    return go_on(trials, std::move(findings), folder, false, options.pilot_cache, console);
  return begin(trials, std::move(findings), folder, options.overwrite || is_auto,
               options.pilot_cache, console);
}

ExitCode resume(const ResumeOptions& options, std::ostream& out, std::ostream& log,
                const Requests& requests) {
  const std::filesystem::path path(options.folder);
  require_run(path);  // nothing is made in what is none
  Findings findings;
  auto overrides = options.overrides;
  overrides.push_back("output_dir=" + options.folder);
  const auto trials = read_trials(path / "config.yaml", overrides, findings);
  return go_on(trials, std::move(findings), OutputFolder(path), options.retry_failed,
               options.pilot_cache, {out, log, options.json, options.progress_file, requests});
}

}  // namespace spillway
