#pragma once

#include <map>
#include <memory>
#include <vector>

#include "scheduler/engine/action.h"
#include "scheduler/plan/program.h"
#include "spillway/trace.h"

namespace spillway {

/// The part of a trace where copies of a queue are.
TraceSpan::Track track_of(CopyQueue queue);

/// Turns the actions and completions of a shell into spans. Both shells use it, so real and
/// simulated runs can be compared.
class TraceRecorder {
 public:
  /// Keeps the first `max_spans` started spans.
  explicit TraceRecorder(std::size_t max_spans) : max_spans_(max_spans) {}

  void submit(JobId job, std::shared_ptr<const JobPlan> plan) { plans_[job] = std::move(plan); }
  void on_action(const Action& action);
  void on_done(const Done& done);

  /// In order of their ends.
  const std::vector<TraceSpan>& spans() const { return spans_; }

 private:
  void observe(const StartOp& start);
  void observe(const StartCopy& start);
  void observe(const StartHostOp& start);
  void observe(const DropGraph&) {}
  void observe(const AdmitJob&) {}
  void observe(const StepCommitted& committed) { steps_[committed.job] = committed.step; }
  void observe(const JobRested&) {}
  void observe(const JobInterrupted&) {}
  void observe(const StepRedone&) {}
  void observe(const PlanChanged& changed) { plans_[changed.job] = changed.plan; }
  void observe(const DeviceLeft&) {}
  void observe(const ReleaseJob&) {}
  void observe(const JobEnded&) {}

  std::size_t max_spans_;
  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;
  std::map<JobId, std::int64_t> steps_;
  std::map<ActionId, TraceSpan> open_;
  std::vector<TraceSpan> spans_;
};

}  // namespace spillway
