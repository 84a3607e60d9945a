#pragma once

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runs/config/sweep.h"
#include "runs/control/open_run.h"
#include "runs/control/trial_call.h"
#include "runs/folder/output_folder.h"
#include "runs/log/event_log.h"
#include "runs/log/metrics_files.h"
#include "spillway/session.h"

namespace spillway {

/// What users call for in a run that goes on. Each call is durable in the log when it returns.
class RunCalls {
 public:
  /// All outlive it. Trials that the session gets are appended to `run`. Problems that concern no
  /// caller go to `problems`.
  RunCalls(OpenRun& run, const OutputFolder& folder, MetricsFiles& metrics, std::ostream& problems);

  /// Carries out a request and returns the answer. Throws Error if it cannot be carried out,
  /// IoError if it may be half done.
  std::string answer(const Json& request);
  /// Extended trials that have ended train on.
  void train_extended();
  /// Whether a trial may go on that did not before, since the last call of this function.
  bool take_may_go_on();

 private:
  std::string answer_call(const Json& request);
  std::string answer_add(const std::vector<std::string>& values);
  [[noreturn]] void refuse_as_absent(std::size_t number) const;
  std::string extend(const Json& event);
  std::string set(std::size_t number, const std::vector<std::string>& values);
  std::string clone(std::size_t number, const std::vector<std::string>& values);
  JobId source_of(std::size_t number);
  std::string name_of_clone(std::size_t number) const;
  std::optional<JobId> job_of(std::size_t number) const;
  bool is_live(std::size_t number) const;
  Trial trial_of(std::size_t number) const;
  Trial extended_trial(std::size_t number, const RunLog& run) const;
  TrialConfig config_of(const Trial& trial) const;
  bool is_to_train_on(std::size_t number) const;
  void train_on(std::size_t number);

  Session& session_;
  std::vector<Trial>& trials_;
  Place& place_;
  const OutputFolder& folder_;
  EventLog& log_;
  MetricsFiles& metrics_;
  std::ostream& problems_;
  bool may_go_on_ = false;
  std::set<std::size_t> refused_;  ///< extended trials that cannot train on
};

}  // namespace spillway
