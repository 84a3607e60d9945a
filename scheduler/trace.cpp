#include "scheduler/trace.h"

#include "core/ids.h"

namespace spillway {
namespace {

TraceSpan::Kind kind_of(OpKind kind) {
  switch (kind) {
    case OpKind::forward:
      return TraceSpan::Kind::forward;
    case OpKind::backward:
      return TraceSpan::Kind::backward;
    case OpKind::evaluate:
      return TraceSpan::Kind::evaluate;
  }
  return TraceSpan::Kind::forward;
}

}  // namespace

void TraceRecorder::on_action(const Action& action) {
  std::visit([this](const auto& a) { observe(a); }, action);
}

void TraceRecorder::observe(const StartOp& start) {
  const OpSpec& op = plans_.at(start.job)->programs[start.flavor]->ops[at(start.op)];
  open_[start.id] = {.kind = kind_of(op.kind),
                     .job = start.job,
                     .device = start.device,
                     .step = start.step,
                     .layers = op.layers,
                     .vn = op.vn};
}

void TraceRecorder::observe(const StartCopy& start) {
  const bool down = start.direction == CopyDirection::to_host;
  open_[start.id] = {.kind = down ? TraceSpan::Kind::to_host : TraceSpan::Kind::to_device,
                     .job = start.job,
                     .device = start.device,
                     .step = steps_[start.job],
                     .buffer = plans_.at(start.job)->layout.buffers[at(start.buffer)].kind,
                     .bytes = start.bytes};
}

void TraceRecorder::observe(const StartHostOp& start) {
  const HostOpSpec& op = plans_.at(start.job)->programs[start.flavor]->host_ops[at(start.op)];
  open_[start.id] = {
      .kind = TraceSpan::Kind::host_op, .job = start.job, .step = start.step, .host_op = op.kind};
}

void TraceRecorder::on_done(const Done& done) {
  const auto found = open_.find(done.id);
  if (found == open_.end()) return;  // an admission
  found->second.started_s = done.started_s;
  found->second.finished_s = done.finished_s;
  spans_.push_back(found->second);
  open_.erase(found);
}

}  // namespace spillway
