#include "apps/commands/follow.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <ostream>

#include "apps/report/format_state.h"
#include "apps/report/progress.h"
#include "apps/report/report.h"
#include "apps/terminal/terminal.h"
#include "runs/control/recorder.h"
#include "runs/control/train_run.h"
#include "runs/text/table.h"

namespace spillway {
namespace {

std::unique_ptr<Progress> make_progress(int file, std::ostream& out) {
  return terminal_size(file) ? make_screen_progress(out, file) : make_line_progress(out);
}

/// Shows a run that trains, and passes on the user's signals.
class Watch {
 public:
  Watch(OpenRun& run, const OutputFolder& folder, const Console& console)
      : session_(*run.session),
        log_(run.events->run()),
        console_(console),
        progress_(make_progress(console.progress_file, console.json ? console.log : console.out)),
        recorder_(
            run, folder, [this](const SessionEvent& event) { progress_->take(log_, event); },
            console.log) {}

  Recorder& recorder() { return recorder_; }

  void run() {
    train_run(session_, recorder_, {[this] { return wants_stop(); }, [this] { show(); }});
    progress_->finish();
  }

 private:
  bool wants_stop() {
    const bool wants = console_.requests.stop;
    if (wants) progress_->stop(log_);
    return wants;
  }
  void show() {
    if (const unsigned asked = console_.requests.state; asked != states_shown_) {
      progress_->finish();
      console_.log << format_state(session_.state(), table_width(console_.log)) << std::flush;
      states_shown_ = asked;
    }
    progress_->show(log_);
  }

  Session& session_;
  const RunLog& log_;
  const Console& console_;
  const std::unique_ptr<Progress> progress_;
  Recorder recorder_;
  unsigned states_shown_ = 0;
};

}  // namespace

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
  const auto any = [&](const auto& is_so) {
    return std::ranges::any_of(run.trials, [&](const auto& trial) { return is_so(trial.result); });
  };
  const auto is_stopped = [](const TrialResult& t) { return t.state == TrialState::stopped; };
  if (interrupted && any(is_stopped)) return kInterrupted;
  // One that was stopped for a reason has lost a host.
  const auto has_failed = [&](const TrialResult& t) {
    return t.state == TrialState::failed || (is_stopped(t) && !t.reason.empty());
  };
  return any(has_failed) ? kTrialFailed : kDone;
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

std::optional<ExitCode> follow(OpenRun& run, const OutputFolder& folder, const Console& console,
                               const std::optional<Json>& request) {
  training_begins();
  Watch watch(run, folder, console);
  if (request) console.log << watch.recorder().answer(*request) << "\n";
  watch.run();
  const bool written = watch.recorder().finish();
  if (run.session->next_hosts() && written && !console.requests.stop) return std::nullopt;
  const RunLog& log = run.events->run();
  print(log, folder, console);
  if (!written) return kTrialFailed;
  const ExitCode code = exit_code(log, console.requests.stop);
  if (code == kInterrupted)
    console.log << "Interrupted. Continue with: " << resume_command(folder.path()) << "\n";
  report_paused(log, folder, console.log);
  return code;
}

}  // namespace spillway
