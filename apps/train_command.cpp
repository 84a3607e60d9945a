#include "apps/train_command.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <ostream>
#include <thread>

#include "apps/chrome_trace.h"
#include "apps/output_folder.h"
#include "apps/progress.h"
#include "apps/report.h"
#include "apps/sweep.h"
#include "apps/trial_factory.h"
#include "apps/yaml_path.h"
#include "core/error.h"

namespace spillway {
namespace {

/// About 20 MB in memory and in the file.
constexpr std::size_t kMaxTraceSpans = 100'000;

YamlNode read_document(const TrainOptions& options) {
  YamlNode tree;
  try {
    tree = read_yaml_file(options.config_file);
  } catch (const IoError& error) {
    throw ConfigError("", 0, error.what());
  }
  for (const auto& text : options.overrides) apply_override(tree, text);
  return tree;
}

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

/// Plans every trial. Throws ConfigErrors for all that are wrong, or DoesNotFit for the trial that
/// needs most.
void submit(Session& session, std::vector<TrialConfig> configs, const std::vector<Trial>& trials,
            std::ostream& log) {
  Findings findings;
  std::vector<DoesNotFit> misfits;
  for (std::size_t t = 0; t < configs.size(); ++t) {
    try {
      session.submit(std::move(configs[t]));
    } catch (const ConfigError& error) {
      note(error, trials[t].tree, findings);
    } catch (const DoesNotFit& error) {
      misfits.push_back(error);
    }
  }
  findings.throw_if_any();
  if (misfits.empty()) return;
  log << misfits.size() << " of " << trials.size() << " trials do not fit; the largest need:\n";
  throw *std::ranges::max_element(misfits, {}, &DoesNotFit::needed);
}

/// Runs the session on a thread of its own and shows what happens.
void run(Session& session, Progress& progress, const std::atomic<bool>& interrupted) {
  constexpr double kPollSeconds = 0.2;
  std::exception_ptr error;
  std::atomic<bool> ended = false;
  std::thread runner([&] {
    try {
      session.run();
    } catch (...) {
      error = std::current_exception();
    }
    ended = true;
  });
  std::uint64_t seen = 0;
  for (bool last = false, stopped = false; !last;) {
    last = ended;
    const auto events = session.poll(seen, last ? 0 : kPollSeconds);
    if (!events.empty()) seen = events.back().sequence;
    progress.show(events);
    if (interrupted && !stopped) {
      session.stop();
      stopped = true;
    }
  }
  runner.join();
  if (error) std::rethrow_exception(error);
}

/// The run on a virtual clock, unless that would take long itself.
std::optional<RunResult> simulate(const Session& session, const std::vector<Trial>& trials) {
  constexpr double kMaxOps = 1e6;
  double ops = 0;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const auto& train = trials[t].config.train;
    ops += 2.0 * session.plan(JobId(t)).num_shards * train.virtual_nodes *
           static_cast<double>(train.max_steps);
  }
  if (ops > kMaxOps) return std::nullopt;
  return session.simulate();
}

ExitCode exit_code(const RunResult& result, bool interrupted) {
  const auto any = [&](TrialState state) {
    return std::ranges::any_of(result.trials, [&](const auto& t) { return t.state == state; });
  };
  if (interrupted && any(TrialState::stopped)) return kInterrupted;
  return any(TrialState::failed) ? kTrialFailed : kDone;
}

}  // namespace

ExitCode train(const TrainOptions& options, std::ostream& out, std::ostream& log,
               const std::atomic<bool>& interrupted) {
  Findings findings;
  const auto trials = expand_trials(read_document(options), findings);
  const auto& config = trials.front().config;
  const OutputFolder folder(config.output_dir);
  auto configs = check(trials, folder, options, findings);
  findings.throw_if_any();

  auto session_config = config.session;
  session_config.max_trace_spans = kMaxTraceSpans;
  Session session(session_config);
  submit(session, std::move(configs), trials, log);
  std::vector<std::string> names;
  for (const auto& trial : trials) names.push_back(trial.name);
  folder.create(names);
  folder.write("config.yaml", to_yaml(config));

  const auto planned = simulate(session, trials);
  Progress progress(options.json ? log : out, trials);
  run(session, progress, interrupted);
  const auto result = session.result();
  folder.write("results.csv", results_csv(trials, result));
  folder.write("trace.json", chrome_trace(trials, result.trace,
                                          planned ? planned->trace : std::vector<TraceSpan>{}));
  if (options.json) {
    out << json_report(result);
  } else {
    print_report(out, trials, result, planned, folder);
  }
  out.flush();
  return exit_code(result, interrupted);
}

}  // namespace spillway
