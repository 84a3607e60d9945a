#include "runs/control/recorder.h"

#include <algorithm>
#include <chrono>
#include <ostream>
#include <utility>

#include "runs/log/event_json.h"
#include "runs/output/chrome_trace.h"
#include "runs/output/run_documents.h"
#include "spillway/error.h"

namespace spillway {
namespace {

/// The Unix time at which the clock of the run was 0, if it reports to TensorBoard.
std::optional<double> tensorboard_begin(const OpenRun& run) {
  const auto& report_to = run.trials.front().config.report_to;
  if (std::ranges::count(report_to, Reporter::tensorboard) == 0) return std::nullopt;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count() - run.events->run().time_s;
}

}  // namespace

Recorder::Recorder(OpenRun& run, const OutputFolder& folder, See see, std::ostream& problems)
    : run_(run),
      folder_(folder),
      see_(std::move(see)),
      problems_(problems),
      metrics_(folder.path(), tensorboard_begin(run)),
      calls_(run, folder, metrics_, problems),
      server_(calls_, folder.path()) {}

void Recorder::serve(bool is_stopping) {
  server_.serve();
  if (!is_stopping) calls_.train_extended();
}

void Recorder::take_events() {
  std::optional<RunResult> progress;  // of resumed trials
  for (const auto& event : run_.session->poll(seen_, 0)) {
    if (event.sequence != seen_ + 1) {
      throw Error("the log could not keep up with the events; continue with 'spillway resume'");
    }
    const bool is_resumed = event.kind == SessionEvent::Kind::resumed;
    if (is_resumed && !progress) progress = run_.session->result();
    const Json json = is_resumed ? resumed(event, *progress) : to_json(run_.place(event));
    run_.events->add(json);
    metrics_.take(json);
    see_(run_.place(event));
    seen_ = event.sequence;
  }
  run_.events->flush();
  metrics_.flush();
}

Json Recorder::resumed(const SessionEvent& event, const RunResult& progress) const {
  const std::size_t trial = event.trial.index();
  return resumed_event(run_.place(event), progress.trials.at(trial),
                       run_.trials[trial].config.train);
}

void Recorder::sample_memory() {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  if (memory_.is_due(now.count())) memory_.take(now.count(), run_.session->state());
}

bool Recorder::finish() {
  take_events();
  const RunResult result = run_.session->result();
  run_.events->add(end_event(result));
  run_.events->flush();
  const bool written = write_outputs(folder_, run_.events->run(), problems_);
  write_trace(result);
  return written;
}

/// No other command needs the trace: a failure does not fail the run.
void Recorder::write_trace(const RunResult& result) {
  const auto planned = run_.planned ? run_.planned->trace : std::vector<TraceSpan>{};
  try {
    folder_.write("trace.json",
                  chrome_trace(run_.trials, result.trace, planned, memory_.samples()));
  } catch (const Error& error) {
    problems_ << "spillway: cannot write the trace: " << error.what() << "\n";
  }
}

}  // namespace spillway
