#pragma once

#include <map>
#include <memory>
#include <vector>

#include "scheduler/action.h"
#include "scheduler/program.h"

namespace spillway {

/// One thing that ran, in seconds of the shell's clock.
struct TraceSpan {
  enum class Kind : std::uint8_t {
    forward,
    backward,
    evaluate,
    to_device,
    to_host,
    host_op
  } kind = Kind::forward;
  JobId job;
  DeviceId device;                          ///< not valid for host ops
  std::int64_t step = 0;                    ///< steps committed when it was started
  LayerRange layers;                        ///< compute ops
  int vn = 0;                               ///< compute ops
  BufferKind buffer = BufferKind::weights;  ///< copies
  HostOpKind host_op = HostOpKind::load;    ///< host ops
  Bytes bytes = 0;                          ///< copies
  double started_s = 0, finished_s = 0;
};

/// Turns what a shell starts, and hears of, into spans. Either shell can have one.
class TraceRecorder {
 public:
  void submit(JobId job, std::shared_ptr<const JobPlan> plan) { plans_[job] = std::move(plan); }
  void on_action(const Action& action);
  void on_done(const Done& done);

  /// In order of their ends.
  const std::vector<TraceSpan>& spans() const { return spans_; }
  std::vector<TraceSpan> take() { return std::move(spans_); }

 private:
  void observe(const StartOp& start);
  void observe(const StartCopy& start);
  void observe(const StartHostOp& start);
  void observe(const AdmitJob&) {}
  void observe(const StepCommitted& committed) { steps_[committed.job] = committed.step; }
  void observe(const JobEnded&) {}

  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;
  std::map<JobId, std::int64_t> steps_;
  std::map<ActionId, TraceSpan> open_;
  std::vector<TraceSpan> spans_;
};

}  // namespace spillway
