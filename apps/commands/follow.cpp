#include "apps/commands/follow.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <ostream>
#include <utility>

#include "apps/commands/answer_requests.h"
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

/// What follows a session that trains.
class Watch {
 public:
  Watch(Session& session, std::vector<Trial>& trials, Place& place, const OutputFolder& folder,
        EventLog& log, MetricsFiles& metrics, MemorySamples& memory, Progress& progress,
        const Console& console)
      : session_(session),
        trials_(trials),
        place_(place),
        log_(log),
        metrics_(metrics),
        memory_(memory),
        progress_(progress),
        console_(console),
        calls_(session, trials, place, folder, log, metrics, console.log),
        server_(calls_, folder.path()) {}

  std::string answer(const Json& request) { return calls_.answer(request); }

  /// Logs and shows the events, and answers other processes, until no trial can go on.
  /// Returns whether a trial goes on after all.
  bool until(const std::future<void>& running) {
    constexpr std::chrono::milliseconds kInterval(100);
    for (bool last = false; !last;) {
      if (console_.requests.stop && !stopped_) {
        session_.stop();
        progress_.stop(log_.run());
        stopped_ = true;
      }
      last = running.wait_for(kInterval) == std::future_status::ready;
      take_events();
      server_.serve();
      if (!stopped_) calls_.train_extended();
      if (last && calls_.take_may_go_on() && !stopped_) return true;
      if (!last) sample_memory();
      show();
    }
    progress_.finish();
    return false;
  }

  /// The last events, of trials that were paused when the run ended.
  void take_events() {
    std::optional<RunResult> progress;  // of resumed trials
    for (const auto& event : session_.poll(seen_, 0)) {
      if (event.sequence != seen_ + 1) {
        throw Error("the log could not keep up with the events; continue with 'spillway resume'");
      }
      const bool is_resumed = event.kind == SessionEvent::Kind::resumed;
      if (is_resumed && !progress) progress = session_.result();
      const Json json = is_resumed ? resumed(event, *progress) : to_json(place_(event));
      log_.add(json);
      metrics_.take(json);
      progress_.take(log_.run(), place_(event));
      seen_ = event.sequence;
    }
    log_.flush();
    metrics_.flush();
  }

 private:
  Json resumed(const SessionEvent& event, const RunResult& progress) const {
    const std::size_t trial = event.trial.index();
    return resumed_event(place_(event), progress.trials.at(trial), trials_[trial].config.train);
  }
  void sample_memory() {
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    if (memory_.is_due(now.count())) memory_.take(now.count(), session_.state());
  }
  void show() {
    if (const unsigned asked = console_.requests.state; asked != states_shown_) {
      progress_.finish();
      console_.log << format_state(session_.state(), table_width(console_.log)) << std::flush;
      states_shown_ = asked;
    }
    progress_.show(log_.run());
  }

  Session& session_;
  std::vector<Trial>& trials_;
  Place& place_;
  EventLog& log_;
  MetricsFiles& metrics_;
  MemorySamples& memory_;
  Progress& progress_;
  const Console& console_;
  RunCalls calls_;
  RequestServer server_;
  std::uint64_t seen_ = 0;
  unsigned states_shown_ = 0;
  bool stopped_ = false;
};

/// Keeps the session's run open until only paused trials are left, which it then stops. An error of
/// the log ends the run.
void run(Session& session, Watch& watch) {
  session.start();
  for (bool again = true; again;) {
    auto running = std::async(std::launch::async, [&] { session.wait(); });
    try {
      again = watch.until(running);
    } catch (...) {
      session.stop();
      throw;
    }
    running.get();
  }
  session.finish();
  watch.take_events();
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

bool report_paused(const RunLog& run, const OutputFolder& folder, std::ostream& log) {
  bool any = false;
  for (const TrialLog& trial : run.trials) {
    if (trial.call != TrialCall::pause || has_ended(trial.result.state)) continue;
    log << fmt::format("Trial {} is paused. Continue with: spillway resume '{}' --trial '{}'\n",
                       trial.result.name, folder.path().string(), trial.result.name);
    any = true;
  }
  return any;
}

ExitCode follow(Session& session, std::vector<Trial> trials, Place place,
                const std::optional<RunResult>& planned, const OutputFolder& folder,
                EventLog& events, const Console& console, const std::optional<Json>& request) {
  training_begins();
  MetricsFiles metrics(folder.path(), tensorboard_begin(trials.front(), events.run()));
  MemorySamples memory;
  const auto progress =
      make_progress(console.progress_file, console.json ? console.log : console.out);
  Watch watch(session, trials, place, folder, events, metrics, memory, *progress, console);
  if (request) console.log << watch.answer(*request) << "\n";
  run(session, watch);
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
  report_paused(events.run(), folder, console.log);
  return code;
}

}  // namespace spillway
