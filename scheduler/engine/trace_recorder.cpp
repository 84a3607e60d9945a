#include "scheduler/engine/trace_recorder.h"

#include "scheduler/plan/span_name.h"

namespace spillway {

TraceSpan::Track track_of(CopyQueue queue) {
  switch (queue) {
    case CopyQueue::from_host:
      return TraceSpan::Track::to_device;
    case CopyQueue::to_host:
      return TraceSpan::Track::to_host;
    case CopyQueue::from_devices:
      return TraceSpan::Track::from_devices;
  }
  return TraceSpan::Track::to_device;
}

void TraceRecorder::on_action(const Action& action) {
  if (spans_.size() + open_.size() < max_spans_) {
    std::visit([this](const auto& a) { observe(a); }, action);
  }
}

void TraceRecorder::observe(const StartOp& start) {
  const auto& program = *plans_.at(start.job)->programs[start.step_kind];
  open_[start.id] = {.device = start.device,
                     .job = start.job,
                     .name = span_name(program.ops[at(start.op)]),
                     .step = start.step};
}

void TraceRecorder::observe(const StartCopy& start) {
  open_[start.id] = {.track = track_of(start.queue()),
                     .device = start.device,
                     .job = start.job,
                     .name = to_string(plans_.at(start.job)->layout.buffers[at(start.buffer)].kind),
                     .step = steps_[start.job],
                     .bytes = start.bytes};
}

void TraceRecorder::observe(const StartHostOp& start) {
  const auto& program = *plans_.at(start.job)->programs[start.step_kind];
  open_[start.id] = {.track = TraceSpan::Track::host_pool,
                     .job = start.job,
                     .name = to_string(program.host_ops[at(start.op)].kind),
                     .step = start.step};
}

void TraceRecorder::on_done(const Done& done) {
  const auto found = open_.find(done.id);
  if (found == open_.end()) return;
  found->second.started_s = done.started_s;
  found->second.finished_s = done.finished_s;
  if (!done.lost) spans_.push_back(std::move(found->second));
  open_.erase(found);
}

}  // namespace spillway
