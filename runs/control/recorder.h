#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "runs/control/open_run.h"
#include "runs/control/request_server.h"
#include "runs/control/run_calls.h"
#include "runs/folder/output_folder.h"
#include "runs/log/metrics_files.h"
#include "runs/output/memory_samples.h"

namespace spillway {

/// Writes what happens in a run to its folder while its session trains, and carries out what other
/// processes ask of it. One thread uses it, often.
class Recorder {
 public:
  using See = std::function<void(const SessionEvent& event)>;

  /// `run` and `folder` outlive it. `see` gets each event once it is in the log. Problems go to
  /// `problems`.
  Recorder(OpenRun& run, const OutputFolder& folder, See see, std::ostream& problems);

  /// Carries out a request of RunCalls and returns the answer.
  std::string answer(const Json& request) { return calls_.answer(request); }
  /// Answers other processes. Unless the run is stopping, extended trials train on.
  void serve(bool is_stopping);
  /// Whether a trial may go on that did not before, since the last call.
  bool take_may_go_on() { return calls_.take_may_go_on(); }
  /// Writes all events since the last call. Throws Error if some are lost, IoError.
  void take_events();
  void sample_memory();
  /// After the session has finished: writes the end of the log, results.csv, plan.json, trace.json.
  /// Returns false, and reports it, if one of the first two cannot be written.
  bool finish();

 private:
  Json resumed(const SessionEvent& event, const RunResult& progress) const;
  void write_trace(const RunResult& result);

  OpenRun& run_;
  const OutputFolder& folder_;
  const See see_;
  std::ostream& problems_;
  MetricsFiles metrics_;
  MemorySamples memory_;
  RunCalls calls_;
  RequestServer server_;
  std::uint64_t seen_ = 0;
};

}  // namespace spillway
