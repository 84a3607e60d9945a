#include "apps/commands/follow.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <ostream>

#include "apps/report/chrome_trace.h"
#include "apps/report/format_state.h"
#include "apps/report/memory_samples.h"
#include "apps/report/progress.h"
#include "apps/report/report.h"
#include "apps/terminal/terminal.h"
#include "runs/log/event_json.h"
#include "runs/log/metrics_files.h"
#include "runs/text/table.h"
#include "spillway/error.h"
#include "trainer/config/batch_split.h"

namespace spillway {
namespace {

/// Logs and shows the events until the session's run is over.
void watch(const std::future<void>& running, Session& session, const std::vector<Trial>& trials,
           const Place& place, EventLog& log, MetricsFiles& metrics, MemorySamples& memory,
           Progress& progress, const Console& console) {
  constexpr std::chrono::milliseconds kInterval(100);
  std::uint64_t seen = 0;
  unsigned states_shown = 0;
  const RunResult begin = session.result();  // with the progress of resumed trials
  const auto json_of = [&](const SessionEvent& event) {
    if (event.kind != SessionEvent::Kind::resumed) return to_json(place(event));
    const std::size_t trial = event.trial.index();
    return resumed_event(place(event), begin.trials[trial], trials[trial].config.train);
  };
  for (bool last = false, stopped = false; !last;) {
    last = running.wait_for(kInterval) == std::future_status::ready;
    for (const auto& event : session.poll(seen, 0)) {
      if (event.sequence != seen + 1) {
        throw Error("the log could not keep up with the events; continue with 'spillway resume'");
      }
      const Json json = json_of(event);
      log.add(json);
      metrics.take(json);
      progress.take(log.run(), place(event));
      seen = event.sequence;
    }
    log.flush();
    metrics.flush();
    if (const unsigned asked = console.requests.state; asked != states_shown) {
      progress.finish();
      console.log << format_state(session.state(), table_width(console.log)) << std::flush;
      states_shown = asked;
    }
    const double now_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    if (!last && memory.is_due(now_s)) memory.take(now_s, session.state());
    progress.show(log.run());
    if (console.requests.stop && !stopped) {
      session.stop();
      progress.stop(log.run());
      stopped = true;
    }
  }
  progress.finish();
}

/// Runs the session on a thread of its own. An error of the log ends the run.
void run(Session& session, const std::vector<Trial>& trials, const Place& place, EventLog& log,
         MetricsFiles& metrics, MemorySamples& memory, Progress& progress, const Console& console) {
  auto running = std::async(std::launch::async, [&] { session.run(); });
  try {
    watch(running, session, trials, place, log, metrics, memory, progress, console);
  } catch (...) {
    session.stop();
    throw;
  }
  running.get();
}

/// The Unix time at which the clock of the run was 0, if it reports to TensorBoard.
std::optional<double> tensorboard_begin(const Trial& trial, const RunLog& run) {
  if (std::ranges::count(trial.config.report_to, Reporter::tensorboard) == 0) return std::nullopt;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count() - run.time_s;
}

std::unique_ptr<Progress> make_progress(int file, std::ostream& out) {
  return terminal_size(file) ? make_screen_progress(out, file) : make_line_progress(out);
}

/// Writes the trace, which no other command needs: a failure does not fail the run.
void write_trace(const OutputFolder& folder, const std::vector<Trial>& trials,
                 const RunResult& result, const std::optional<RunResult>& planned,
                 const MemorySamples& memory, std::ostream& log) {
  try {
    folder.write("trace.json", chrome_trace(trials, result.trace,
                                            planned ? planned->trace : std::vector<TraceSpan>{},
                                            memory.samples()));
  } catch (const Error& error) {
    log << "spillway: cannot write the trace: " << error.what() << "\n";
  }
}

}  // namespace

SessionEvent Place::operator()(SessionEvent event) const {
  if (event.trial.valid()) event.trial = JobId(trials.at(event.trial.index()));
  event.sequence += sequence;
  event.time_s += time_s;
  return event;
}

std::optional<RunResult> simulate(const Session& session, const std::vector<Trial>& trials) {
  constexpr double kMaxOps = 1e5;  // two seconds
  double ops = 0;
  for (std::size_t t = 0; t < trials.size(); ++t) {
    const auto& train = trials[t].config.train;
    ops += 2.0 * session.plan(JobId(t)).num_shards * virtual_nodes_of(train) *
           static_cast<double>(train.max_steps);
  }
  if (ops > kMaxOps) return std::nullopt;
  return session.simulate();
}

bool write_outputs(const OutputFolder& folder, const RunLog& run, std::ostream& log) {
  bool written = true;
  const auto write = [&](const char* name, const std::string& text) {
    try {
      folder.write(name, text);
    } catch (const IoError& error) {
      log << "spillway: cannot write " << name << ": " << error.what() << "\n";
      written = false;
    }
  };
  write("results.csv", results_csv(run));
  write("plan.json", plan_json(run));
  return written;
}

void print(const RunLog& run, const OutputFolder& folder, const Console& console) {
  if (console.json) {
    console.out << json_report(run, folder.path(), RunState::ended);
  } else {
    fit_tables(console.out, console.progress_file);  // its width may have changed during the run
    print_report(console.out, run, folder.path());
  }
  console.out.flush();
}

ExitCode exit_code(const RunLog& run, bool interrupted) {
  const auto any = [&](TrialState state) {
    return std::ranges::any_of(run.trials, [&](const auto& t) { return t.result.state == state; });
  };
  if (interrupted && any(TrialState::stopped)) return kInterrupted;
  return any(TrialState::failed) ? kTrialFailed : kDone;
}

ExitCode follow(Session& session, const std::vector<Trial>& trials, const Place& place,
                const std::optional<RunResult>& planned, const OutputFolder& folder,
                EventLog& events, const Console& console) {
  training_begins();
  MetricsFiles metrics(folder.path(), tensorboard_begin(trials.front(), events.run()));
  MemorySamples memory;
  run(session, trials, place, events, metrics, memory,
      *make_progress(console.progress_file, console.json ? console.log : console.out), console);
  const auto result = session.result();
  events.add(end_event(result));
  events.flush();
  const bool written = write_outputs(folder, events.run(), console.log);
  print(events.run(), folder, console);
  write_trace(folder, trials, result, planned, memory, console.log);
  if (!written) return kTrialFailed;
  const ExitCode code = exit_code(events.run(), console.requests.stop);
  if (code == kInterrupted)
    console.log << "Interrupted. Continue with: " << resume_command(folder.path()) << "\n";
  return code;
}

}  // namespace spillway
