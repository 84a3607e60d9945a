#pragma once

#include <string>
#include <vector>

#include "apps/commands/follow.h"
#include "runs/config/sweep.h"
#include "runs/folder/requests.h"
#include "runs/log/event_log.h"
#include "runs/log/metrics_files.h"
#include "spillway/session.h"

namespace spillway {

/// Carries out what other processes ask of a run that is going on. Each call is durable in the log
/// before it has its answer.
class RequestServer {
 public:
  /// All outlive it. Added trials are appended to `trials` and `place`.
  RequestServer(Session& session, std::vector<Trial>& trials, Place& place,
                const OutputFolder& folder, EventLog& log, MetricsFiles& metrics);

  /// Answers all requests that have come. Returns whether a trial may go on that did not before.
  bool serve();

 private:
  std::string answer(const Json& request);
  std::string answer_call(const Json& request);
  std::string answer_add(const std::vector<std::string>& values);

  Session& session_;
  std::vector<Trial>& trials_;
  Place& place_;
  const OutputFolder& folder_;
  EventLog& log_;
  MetricsFiles& metrics_;
  RequestInbox inbox_;
  bool may_go_on_ = false;
};

}  // namespace spillway
